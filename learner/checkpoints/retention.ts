import type { SavedState } from '../../shared/wire/ledger.js';

export interface RetentionRules {
  /** States of steps that this divides are kept for good; 0: none for that. */
  readonly keepEverySteps: number;
  /** Steps that are being evaluated: their states may turn out to be the best. */
  readonly underEvaluation: readonly number[];
}

/** The newest states: the one in the ledger, and one to fall back on by hand. */
const rolling = 2;

/**
 * Which saved states nobody needs any more: all but the newest two, one every so many steps, and the
 * one of the best evaluation, of equals the newer, or whose evaluation is under way.
 *
 * @param states in the order in which they were saved.
 */
export function superfluous(
  states: readonly SavedState[],
  { keepEverySteps, underEvaluation }: RetentionRules,
): SavedState[] {
  const best = states.reduce<SavedState | undefined>(
    (found, state) =>
      state.score !== undefined && state.score >= (found?.score ?? 0) ? state : found,
    undefined,
  );
  return states
    .slice(0, -rolling)
    .filter((state) => state !== best && !underEvaluation.includes(state.step))
    .filter(({ step }) => keepEverySteps === 0 || step % keepEverySteps !== 0);
}

import { errorText } from '../../shared/base/errors.js';
import type { PolicyStore } from '../../shared/broker/policy-store.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
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

export interface OrphansOptions {
  readonly client: Pick<TinkerClient, 'listCheckpoints' | 'deleteCheckpoint'>;
  readonly policy: Pick<PolicyStore, 'versions' | 'at'>;
  /** The states of the run; none that is not among them is needed. */
  readonly states: readonly { readonly path: string }[];
  /** Throws if another learner leads. */
  readonly confirmLead: () => Promise<void>;
  readonly log: Logger;
}

/** What learners call what they save; whatever else a run has at the backend is somebody else's. */
const ours = /^(state|policy)-\d{6,}$/;

/**
 * Deletes what former learners of the run saved and nothing names: a crash came before it was named, or
 * the backend could not delete it while it was. To be called before this session saves anything. Only
 * runs at the backend of which something is named are known.
 *
 * @returns how many were deleted; never rejects, since it does no harm if they stay.
 */
export async function deleteOrphans(options: OrphansOptions): Promise<number> {
  const { client, policy, states, confirmLead, log } = options;
  let deleted = 0;
  try {
    const named = new Set(states.map(({ path }) => path));
    for (const version of await policy.versions()) {
      const manifest = await policy.at(version);
      if (manifest !== undefined) named.add(manifest.samplerPath);
    }
    const runs = new Set([...named].map((path) => parseTinkerPath(path).runId));
    const found = (await Promise.all([...runs].map((run) => client.listCheckpoints(run)))).flat();
    // After the list was made: so nothing in it is of a successor, which has not begun yet.
    await confirmLead();
    for (const { path } of found) {
      if (named.has(path) || !ours.test(parseTinkerPath(path).name)) continue;
      await client.deleteCheckpoint(path);
      deleted += 1;
    }
  } catch (caught) {
    log.warn({ reason: errorText(caught) }, 'unnamed weights not deleted');
  }
  if (deleted > 0) log.info({ deleted }, 'deleted weights that nothing names');
  return deleted;
}

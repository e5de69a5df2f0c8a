import { errorText } from '../../shared/base/errors.js';
import type { PolicyStore } from '../../shared/broker/policy-store.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import { RunLost } from '../../shared/tinker/errors.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
import { isSavedByLearner } from '../../shared/wire/checkpoint-names.js';
import { bestState, type SavedState } from '../../shared/wire/ledger.js';

export interface RetentionRules {
  /** States of steps divisible by this are never deleted; 0: no such rule. */
  readonly keepEverySteps: number;
  /** Steps under evaluation, whose states may turn out to be the best. */
  readonly underEvaluation: readonly number[];
}

/**
 * Whether a step gets a checkpoint: every `checkpointEverySteps`-th, and every `keepEverySteps`-th, which is kept for good.
 *
 * @param rules both in steps; `keepEverySteps` may be 0.
 */
export function isCheckpointed(
  step: number,
  rules: { readonly checkpointEverySteps: number } & Pick<RetentionRules, 'keepEverySteps'>,
): boolean {
  const { checkpointEverySteps, keepEverySteps } = rules;
  return step % checkpointEverySteps === 0 || (keepEverySteps > 0 && step % keepEverySteps === 0);
}

/** Newest states that are kept: the one in the ledger, and one to fall back on by hand. */
const newestKept = 2;

/**
 * Returns the saved states that can be deleted. Kept are the newest two, those of every `keepEverySteps`
 * steps, the one with the best evaluation score (the newer of equals), and those under evaluation. If
 * evaluations were over different numbers of problems, the best of each is kept, as their scores do not compare.
 *
 * @param states in the order in which they were saved.
 * @param problems held-out problems of the evaluation of each step, if known.
 */
export function statesToDelete(
  states: readonly SavedState[],
  { keepEverySteps, underEvaluation }: RetentionRules,
  problems: ReadonlyMap<number, number> = new Map(),
): SavedState[] {
  const measures = new Set(states.map(({ step }) => problems.get(step)));
  const best = new Set(
    [...measures].map((measure) =>
      bestState(states.filter(({ step }) => problems.get(step) === measure)),
    ),
  );
  return states
    .slice(0, -newestKept)
    .filter((state) => !best.has(state) && !underEvaluation.includes(state.step))
    .filter(({ step }) => keepEverySteps === 0 || step % keepEverySteps !== 0);
}

interface OrphansOptions {
  readonly client: Pick<TinkerClient, 'listCheckpoints' | 'deleteCheckpoint'>;
  readonly policy: Pick<PolicyStore, 'versions' | 'at' | 'deleteOrphans'>;
  /** All states that the run needs. */
  readonly states: readonly { readonly path: string }[];
  /** Throws if another learner leads. */
  readonly confirmLead: () => Promise<void>;
  readonly log: Logger;
}

/**
 * Deletes orphans: checkpoints of earlier learners at the backend, and adapters in NATS, that nothing names. Either a
 * crash came before something named them, or their deletion failed. Call this before the session saves anything. It
 * looks only at backend runs of which at least one checkpoint is named.
 *
 * @returns the number of checkpoints deleted; never rejects, since orphans that stay do no harm.
 */
export async function deleteOrphans(options: OrphansOptions): Promise<number> {
  const { client, policy, states, confirmLead, log } = options;
  let deleted = 0;
  try {
    const named = new Set(states.map(({ path }) => path));
    for (const version of await policy.versions()) {
      const manifest = await policy.at(version);
      if (manifest === undefined) continue;
      named.add(manifest.samplerPath);
      if (manifest.adapter?.files !== undefined) named.add(manifest.adapter.files);
    }
    const runs = new Set([...named].map((path) => parseTinkerPath(path).runId));
    const listed = [...runs].map((run) =>
      client.listCheckpoints(run).catch((caught: unknown) => {
        if (caught instanceof RunLost) return []; // its last checkpoint was deleted, not yet the name
        throw caught;
      }),
    );
    const found = (await Promise.all(listed)).flat();
    // Confirmed after listing, so the list has no checkpoints of a successor.
    await confirmLead();
    for (const { path } of found) {
      if (named.has(path) || !isSavedByLearner(parseTinkerPath(path).name)) continue;
      await client.deleteCheckpoint(path);
      deleted += 1;
    }
    const parts = await policy.deleteOrphans(confirmLead);
    if (parts > 0) log.info({ parts }, 'orphaned adapters deleted');
  } catch (caught) {
    log.warn({ reason: errorText(caught) }, 'orphaned checkpoints not deleted');
  }
  if (deleted > 0) log.info({ deleted }, 'orphaned checkpoints deleted');
  return deleted;
}

import type { TinkerPath } from '../shared/tinker/tinker-path.js';
import {
  type CheckpointMetadata,
  type CheckpointStore,
  formatTinkerPath,
  isOver,
  pathOf,
} from './checkpoint-store.js';
import type { LastUses, SamplingSessions } from './sampling-sessions.js';

/** Of each training run, the newest snapshots without a name that samplers have open are kept, however long unused. */
export const keptSnapshots = 100;
const unusedMs = 3_600_000;
const withoutSamplerMs = 86_400_000;

/**
 * Deletes the checkpoints whose time is over and the snapshots without a name that are no longer used.
 *
 * @param clock in ms since the epoch: now, and when this process started, before which it knows of no use.
 * @throws the first failure, after all others have been tried.
 */
export async function deleteExpired(
  store: CheckpointStore,
  samplers: Pick<SamplingSessions, 'closeFor' | 'lastUses'>,
  clock: { readonly now: number; readonly startedAt: number },
): Promise<void> {
  const { now } = clock;
  const isDue = (saved: CheckpointMetadata) =>
    isOver(saved, now) || isUnused(saved, clock, samplers.lastUses());
  const due = [
    ...store.expired(now),
    ...snapshotsToDelete(store.list(), clock, samplers.lastUses()),
  ];
  const failures: unknown[] = [];
  for (const path of due.map(pathOf)) {
    try {
      // It may have been used, changed, saved again or deleted while others were deleted.
      if (store.has(path)) await deleteCheckpoint(store, samplers, path, isDue);
    } catch (caught) {
      failures.push(caught);
    }
  }
  if (failures.length > 0) throw failures[0];
}

/**
 * The snapshots without a name that are no longer needed. A client that opens a sampler for each step
 * (`save_weights_and_get_sampling_client`) leaves one a step and never deletes any.
 *
 * @param saved all checkpoints, the oldest first.
 */
export function snapshotsToDelete(
  saved: readonly CheckpointMetadata[],
  clock: { readonly now: number; readonly startedAt: number },
  uses: LastUses,
): CheckpointMetadata[] {
  const newer = new Map<string, number>(); // by run
  return saved.toReversed().filter((one) => {
    const hasSampler = uses.open.has(formatTinkerPath(pathOf(one)));
    const rank = newer.get(one.training_run_id) ?? 0;
    if (one.unnamed === true && hasSampler) newer.set(one.training_run_id, rank + 1);
    return isUnused(one, clock, uses) && (!hasSampler || rank >= keptSnapshots);
  });
}

function isUnused(
  saved: CheckpointMetadata,
  { now, startedAt }: { readonly now: number; readonly startedAt: number },
  { open, closed }: LastUses,
): boolean {
  if (saved.unnamed !== true) return false;
  const path = formatTinkerPath(pathOf(saved));
  const usedAt = open.get(path);
  if (usedAt !== undefined) return now - usedAt >= unusedMs;
  const closedAt = closed.get(path) ?? startedAt;
  return now - Math.max(Date.parse(saved.created_at), closedAt) >= withoutSamplerMs;
}

/**
 * Deletes a checkpoint. Its sampling sessions are closed once its name is free, before its files are deleted.
 *
 * @param isDue whether it is still to be deleted when its turn has come.
 * @throws {ApiError} 404
 */
export async function deleteCheckpoint(
  store: CheckpointStore,
  samplers: Pick<SamplingSessions, 'closeFor'>,
  path: TinkerPath,
  isDue?: (saved: CheckpointMetadata) => boolean,
): Promise<void> {
  const closeSamplers = () => {
    samplers.closeFor(path);
  };
  await store.delete(path, closeSamplers, isDue);
}

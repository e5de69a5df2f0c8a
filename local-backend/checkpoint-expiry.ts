import type { TinkerPath } from '../shared/tinker/tinker-path.js';
import {
  type CheckpointMetadata,
  type CheckpointStore,
  formatTinkerPath,
  isOver,
  pathOf,
} from './checkpoint-store.js';
import type { SamplingSessions } from './sampling-sessions.js';

/** Of each training run, the newest snapshots without a name that samplers have open are kept, however long unused. */
export const keptSnapshots = 100;
const unusedMs = 3_600_000;
const withoutSamplerMs = 86_400_000;

/**
 * Deletes the checkpoints whose time is over and the snapshots without a name that are no longer used.
 *
 * @param now in ms since the epoch.
 * @throws the first failure, after all others have been tried.
 */
export async function deleteExpired(
  store: CheckpointStore,
  samplers: Pick<SamplingSessions, 'closeFor' | 'lastUses'>,
  now: number,
): Promise<void> {
  const isDue = (saved: CheckpointMetadata) =>
    isOver(saved, now) || isUnused(saved, now, samplers.lastUses());
  const due = [...store.expired(now), ...snapshotsToDelete(store.list(), now, samplers.lastUses())];
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
 * @param now in ms since the epoch.
 * @param lastUses when the samplers of a checkpoint were last used, likewise, by the path of those that have one open.
 */
export function snapshotsToDelete(
  saved: readonly CheckpointMetadata[],
  now: number,
  lastUses: ReadonlyMap<string, number>,
): CheckpointMetadata[] {
  const newer = new Map<string, number>(); // by run
  return saved.toReversed().filter((one) => {
    const hasSampler = lastUses.has(formatTinkerPath(pathOf(one)));
    const rank = newer.get(one.training_run_id) ?? 0;
    if (one.unnamed === true && hasSampler) newer.set(one.training_run_id, rank + 1);
    return isUnused(one, now, lastUses) && (!hasSampler || rank >= keptSnapshots);
  });
}

function isUnused(
  saved: CheckpointMetadata,
  now: number,
  lastUses: ReadonlyMap<string, number>,
): boolean {
  if (saved.unnamed !== true) return false;
  const usedAt = lastUses.get(formatTinkerPath(pathOf(saved)));
  if (usedAt === undefined) return now - Date.parse(saved.created_at) >= withoutSamplerMs;
  return now - usedAt >= unusedMs;
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

import { CheckpointList } from './api.js';
import type { TinkerHttp } from './http.js';
import { checkpointsUrl, parseTinkerPath } from './tinker-path.js';

export interface CheckpointInfo {
  readonly path: string; // tinker://…
  readonly kind: 'training' | 'sampler' | 'external';
  readonly time?: string; // ISO 8601
  readonly bytes?: number;
}

/** Lists the checkpoints of a run, of all kinds, page by page. */
export async function listCheckpoints(
  http: TinkerHttp,
  runId: string,
  signal: AbortSignal,
): Promise<CheckpointInfo[]> {
  const found: CheckpointInfo[] = [];
  for (;;) {
    const path = `${checkpointsUrl(runId)}?limit=${pageLength}&offset=${found.length}`;
    const request = { operation: 'list checkpoints', method: 'GET', path } as const;
    const answer = await http.call(request, signal, { max500s: 1 });
    const { checkpoints, cursor } = answer.parse(CheckpointList);
    for (const { tinker_path, checkpoint_type, time, size_bytes } of checkpoints) {
      found.push({
        path: tinker_path,
        kind: checkpoint_type,
        ...(time !== undefined && { time }),
        ...(size_bytes !== undefined && { bytes: size_bytes }),
      });
    }
    const total = cursor?.total_count ?? found.length;
    if (checkpoints.length === 0 || found.length >= total) return found;
  }
}

/**
 * Waits until the server lists a checkpoint that it has begun to save: SkyRL lists only those that are complete.
 *
 * @throws {Unavailable} if it does not within the client's retry budget, as after a save that failed.
 */
export async function untilListed(
  http: TinkerHttp,
  tinkerPath: string,
  signal: AbortSignal,
): Promise<string> {
  const { runId } = parseTinkerPath(tinkerPath);
  const retryBudget = http.retryBudget();
  for (;;) {
    const listed = await listCheckpoints(http, runId, signal);
    if (listed.some(({ path }) => path === tinkerPath)) return tinkerPath;
    const detail = `${tinkerPath} is not listed`;
    const url = http.baseUrl + checkpointsUrl(runId);
    await retryBudget.wait({ operation: 'list checkpoints', url, detail }, undefined, signal);
  }
}

const pageLength = 100;

import type { GroupRequest, PolicyChoice } from './sampler.js';

/** A group that waits to be sampled. */
export interface QueuedGroup {
  readonly id: number;
  readonly request: GroupRequest;
  readonly policy: PolicyChoice;
}

/**
 * The groups that are sampled side by side next: the first of the queue and all others that may use
 * the same policy at every token. Groups that adopt newer versions all follow the newest; a group that
 * does not keeps company only with others of its version.
 *
 * @returns `rest` keeps its order; `wave` is empty only if the queue is.
 */
export function takeWave<Group extends QueuedGroup>(
  queue: readonly Group[],
): { wave: Group[]; rest: Group[] } {
  const [first] = queue;
  if (first === undefined) return { wave: [], rest: [] };
  const joins = ({ policy }: Group): boolean =>
    policy.adoptsNewer === first.policy.adoptsNewer &&
    (policy.adoptsNewer || policy.version === first.policy.version);
  return { wave: queue.filter(joins), rest: queue.filter((group) => !joins(group)) };
}

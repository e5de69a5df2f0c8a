import { askFor, type Link } from './link.js';
import type { RunNames, Source } from './names.js';

/**
 * Whether a queue holds messages that its consumer will never deliver, because it has them as
 * acknowledged. A nats-server that was killed between the two may come back so (2.9.10 does): the
 * acknowledgement is there, the message too, and takes up a place in a bounded queue for ever.
 */
export async function hasGhosts(
  link: Link,
  { stream, durable, filter }: ReturnType<RunNames['consumer']>,
): Promise<boolean> {
  const info = await askFor(link, `look at consumer ${durable} of ${stream}`, () =>
    link.jsm.consumers.info(stream, durable),
  );
  // While nothing waits for its acknowledgement, whatever was delivered has been acknowledged.
  const isQuiet = info?.num_ack_pending === 0;
  const settled = (isQuiet ? info.delivered : info?.ack_floor)?.stream_seq ?? 0;
  if (settled === 0) return false;
  const query = { seq: 1, next_by_subj: filter };
  const first = await askFor(link, `read ${stream}`, () =>
    link.jsm.streams.getMessage(stream, query),
  );
  return first !== undefined && first.seq <= settled;
}

/** Queues whose consumers are shared with others; the learner makes those of its own anew anyway. */
export const sharedSources: readonly Source[] = ['tickets.train', 'tickets.eval', 'rollouts'];

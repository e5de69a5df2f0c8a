import { decode, WireError } from '../wire/codec.js';
import { ScoredGroup } from '../wire/scored-group.js';
import { askFor, type Link } from './link.js';
import { MessageHeaders } from './message-headers.js';
import type { ObjectBucket } from './object-bucket.js';
import { bodyHeader } from './publish.js';
import { lastSequence } from './tail.js';

/** A scored group that waits for the learner, or is in its hands. */
export interface NewestScored {
  readonly seq: number; // in its stream
  readonly group: ScoredGroup;
}

/**
 * The newest scored group of training, only looked at: no delivery of it is touched.
 *
 * @param seen the one that the caller has already: it is not read again.
 * @returns undefined when there is none, or none but `seen`.
 * @throws {WireError} if it is malformed; {PermanentError} if its body is damaged.
 */
export async function newestScored(
  link: Link,
  bodies: ObjectBucket,
  seen: number,
): Promise<NewestScored | undefined> {
  const stream = link.names.streams.scored;
  const last = await lastSequence(link, stream);
  if (last === 0 || last === seen) return undefined;
  const subject = link.names.subjects.scored('train');
  const message = await askFor(link, `read ${stream}`, () =>
    link.jsm.streams.getMessage(stream, { last_by_subj: subject }),
  );
  if (message === undefined || message.seq === seen) return undefined;
  const headers = new MessageHeaders(message);
  if (headers.isMalformed) throw new WireError(`${subject}: its headers are malformed`);
  const object = headers.get(bodyHeader);
  const data = object === undefined ? message.data : await bodies.get(object);
  if (data === undefined) return undefined; // settled meanwhile
  return { seq: message.seq, group: decode(ScoredGroup, subject, data) };
}

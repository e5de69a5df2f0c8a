import type { StreamState } from 'nats';
import { askFor, type Link } from './link.js';

/**
 * What the server has in a stream; undefined where there is none.
 *
 * @param subjects of which it should count the messages, too, as a filter. Not of a stream that is only just being
 *   made: nats-server 2.9.10 ends with a panic.
 */
export async function streamState(
  link: Link,
  stream: string,
  subjects?: string,
): Promise<StreamState | undefined> {
  const options = subjects === undefined ? {} : { subjects_filter: subjects };
  const info = await askFor(link, `look at stream ${stream}`, () =>
    link.jsm.streams.info(stream, options),
  );
  return info?.state;
}

import { Events } from 'nats';
import { errorText } from '../base/errors.js';
import type { Link } from './link.js';

/**
 * Follows the connection until it is closed, for `outages` and the log.
 *
 * @param onRestored called after each outage.
 */
export function followConnection(
  link: Pick<Link, 'connection' | 'log' | 'outages'>,
  onRestored: () => void,
): void {
  void followEvents(link, onRestored);
  void followClose(link);
}

async function followEvents(
  { connection, log, outages }: Pick<Link, 'connection' | 'log' | 'outages'>,
  onRestored: () => void,
): Promise<void> {
  for await (const { type, data } of connection.status()) {
    if (type === Events.Disconnect) {
      // Each attempt that the server refuses is one more.
      const isNew = !outages.isDown && !connection.isDraining() && !connection.isClosed();
      outages.begin();
      if (isNew) log.warn('NATS connection lost');
    } else if (type === Events.Reconnect) {
      if (!outages.isDown) continue; // one for each attempt that was refused before
      outages.end();
      log.info('NATS connection restored');
      onRestored();
    } else if (type === Events.Error) {
      log.error({ data }, 'NATS reported an error');
    }
  }
}

/** After two refusals of the credentials nats.js closes for good. Requests then fail instead of waiting for a connection. */
async function followClose({
  connection,
  log,
  outages,
}: Pick<Link, 'connection' | 'log' | 'outages'>): Promise<void> {
  const why = await connection.closed(); // the events do not end with the connection
  outages.end();
  if (why) log.error({ reason: errorText(why) }, 'NATS connection closed for good');
}

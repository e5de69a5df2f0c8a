import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from '../../shared/broker/broker.js';

/** How many polls must find JetStream off: a server that has just started may answer before it is on. */
const polls = 3;

/**
 * Watches for a server that answers but has switched JetStream off. A write that fails on a full disk switches
 * it off until a restart, even if the disk was full too briefly for another check to notice.
 *
 * @param onOff restarts the server; called again if that does not help. The watch continues when it resolves.
 */
export async function watchJetStream(
  broker: Pick<Broker, 'isConnected' | 'offersJetStream'>,
  onOff: () => Promise<void>,
  signal: AbortSignal,
  pollMs = 1_000,
): Promise<void> {
  const isOver = () => signal.aborted;
  for (let off = 0; !isOver();) {
    await sleep(pollMs, undefined, { signal }).catch(() => undefined);
    if (isOver()) return;
    off = broker.isConnected && !(await broker.offersJetStream()) ? off + 1 : 0;
    if (off < polls) continue;
    off = 0;
    await onOff();
  }
}

import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from '../../shared/broker/broker.js';

/** How many polls must find JetStream off: a server that has just started may answer before it is on. */
const polls = 3;

/**
 * Watches for a server that answers but has switched JetStream off. A write that fails on a full disk switches
 * it off until a restart, even if the disk was full too briefly for another check to notice.
 *
 * @param onOff restarts the server; called again if that does not help. The watch continues when it resolves.
 * @param options.untilOn returns as soon as JetStream is on.
 */
export async function watchJetStream(
  broker: Pick<Broker, 'isConnected' | 'offersJetStream'>,
  onOff: () => Promise<void>,
  signal: AbortSignal,
  { pollMs = 1_000, untilOn = false } = {},
): Promise<void> {
  const isOver = () => signal.aborted;
  for (let off = 0; !isOver();) {
    const isOn = broker.isConnected ? await broker.offersJetStream() : undefined;
    if (isOn === true && untilOn) return;
    off = isOn === false ? off + 1 : 0;
    if (off === polls) {
      off = 0;
      await onOff();
    }
    await sleep(pollMs, undefined, { signal }).catch(() => undefined);
  }
}

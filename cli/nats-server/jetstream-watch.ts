import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from '../../shared/broker/broker.js';

/** How many polls must find JetStream off: a server that has just started may answer before it is on. */
const offPolls = 3;

/** Two polls that are apart by so much more than their pause show that this process was suspended. */
const suspendedMs = 10_000;

/** Why a server must be restarted: it has switched JetStream off, or gives no answer at all. */
export type ServerTrouble = 'off' | 'silent';

/**
 * Watches for a server that has switched JetStream off or hangs. A write that fails on a full disk does one or the
 * other until a restart, even if the disk was full too briefly for another check to notice.
 *
 * @param onTrouble restarts the server; called again if that does not help. The watch continues when it resolves.
 * @param options.silentMs how long a server may give no answer: it may be starting, or the machine be busy.
 * @param options.untilOn returns as soon as JetStream is on.
 */
export async function watchJetStream(
  broker: Pick<Broker, 'isConnected' | 'offersJetStream'>,
  onTrouble: (trouble: ServerTrouble) => Promise<void>,
  signal: AbortSignal,
  { pollMs = 1_000, silentMs = 60_000, untilOn = false, now = () => performance.now() } = {},
): Promise<void> {
  const isOver = () => signal.aborted;
  for (let [off, answeredAt, checkedAt] = [0, now(), now()]; !isOver();) {
    const isOn = broker.isConnected ? await broker.offersJetStream() : undefined;
    if (isOn === true && untilOn) return;
    const wasSuspended = now() - checkedAt > pollMs + suspendedMs;
    checkedAt = now();
    if (isOn !== undefined || wasSuspended) answeredAt = now();
    off = isOn === false ? off + 1 : 0;
    const isSilent = now() - answeredAt >= silentMs;
    if ((off === offPolls || isSilent) && !isOver()) {
      await onTrouble(isSilent ? 'silent' : 'off');
      [off, answeredAt] = [0, now()];
    }
    await sleep(pollMs, undefined, { signal }).catch(() => undefined);
  }
}

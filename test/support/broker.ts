import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import type { Broker } from '../../shared/broker/broker.js';
import { type BrokerOptions, connectBroker } from '../../shared/broker/connect.js';
import type { NatsServer } from './nats-server.js';

/** A log that discards every line. */
export const silent = pino({ level: 'silent' });

/** A broker of run `test` on the server of a test. */
export function brokerOn(server: NatsServer, over: Partial<BrokerOptions> = {}): Promise<Broker> {
  return connectBroker({
    natsUrl: server.url,
    run: 'test',
    client: 'test',
    log: silent,
    signal: new AbortController().signal,
    ...over,
  });
}

/** Waits until the condition holds. Rejects after three minutes, so that the stack names the line that waits. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 180_000;
  while (!(await condition())) {
    if (performance.now() > deadline)
      throw new Error(`still not true after 3 minutes: ${String(condition)}`);
    await sleep(10);
  }
}

/** A promise and the function that resolves it. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

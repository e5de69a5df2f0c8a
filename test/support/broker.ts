import type { Broker } from '../../shared/broker/broker.js';
import { type BrokerOptions, connectBroker } from '../../shared/broker/connect.js';
import { silent } from './log.js';
import type { NatsServer } from './nats-server.js';
import { never } from './waiting.js';

/** A broker of run `test` on the server of a test. */
export function brokerOn(server: NatsServer, over: Partial<BrokerOptions> = {}): Promise<Broker> {
  return connectBroker({
    natsUrl: server.url,
    run: 'test',
    client: 'test',
    log: silent,
    signal: never,
    ...over,
  });
}

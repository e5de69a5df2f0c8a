import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { silent } from './log.js';
import { ticket } from './messages.js';
import type { NatsServer } from './nats-server.js';
import { gate, until } from './waiting.js';

/**
 * Restarts the server while one side issues tickets and the other takes them. Resolves once each
 * ticket was taken and the queue is empty.
 *
 * @param sides whose connections must recover by themselves; the learner's ack wait is short, since
 *   messages in transit to the actor during the restart are redelivered only after it.
 */
export async function takeTicketsThroughRestart(
  server: NatsServer,
  { learner, actor }: { readonly learner: Broker; readonly actor: Broker },
  how: 'SIGTERM' | 'SIGKILL',
): Promise<void> {
  const stopping = new AbortController();
  const { signal } = stopping;
  const taken = new Set<number>();
  const options = { signal, log: silent, stage: 'actor', concurrency: 4 };
  const consuming = consume(actor, 'tickets.train', Ticket, options, ({ value }) => {
    taken.add(value.order);
    return Promise.resolve();
  });
  const total = 200;
  const halfway = gate();
  const publishing = (async () => {
    for (let order = 0; order < total; order++) {
      const message = ticket({ ticketId: `t-${order}`, order });
      const subject = learner.names.subjects.tickets('train');
      await learner.publish(subject, Ticket, message, { msgId: `t-${order}`, signal });
      if (order === total / 2) halfway.open();
    }
  })();
  await halfway.opened;
  await server.stop(how);
  await until(() => !learner.isConnected && !actor.isConnected);
  await server.resume();

  await publishing;
  await until(() => taken.size === total);
  await until(async () => (await learner.depths()).tickets === 0);
  stopping.abort();
  await consuming;
}

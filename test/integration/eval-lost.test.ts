import assert from 'node:assert/strict';
import { it } from 'node:test';
import { watchLost } from '../../cli/eval/measure.js';
import { consume } from '../../shared/broker/consume.js';
import { Evaluator } from '../../shared/run/evaluation/evaluator.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { brokerOn } from '../support/broker.js';
import { silent } from '../support/log.js';
import { runConfig } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';

it(
  'an evaluation ends although tickets are given up without a dead letter',
  { timeout: 120_000 },
  async () => {
    await using server = await NatsServer.start();
    await using broker = await brokerOn(server);
    await broker.ensureRun({ trainTickets: 1, evalTickets: 4 });
    const evaluator = new Evaluator({
      config: runConfig(),
      problems: [{ id: 'p-0', difficulty: '3 numbers' }],
      samples: 1,
      newestVersion: () => 0,
      isQuarantined: () => false,
      log: silent,
      publish: (ticket, signal) => broker.tickets.publish(ticket, { signal }),
    });
    const stopping = new AbortController();
    const { signal } = stopping;
    const evaluating = evaluator.run(0, signal);
    // Takes each ticket and delivers no group, as an actor that is over its limit of letters.
    const taking = consume(
      broker,
      'tickets.eval',
      Ticket,
      { signal, log: silent, stage: 'actor', concurrency: 1 },
      () => Promise.resolve(),
    );
    const watching = watchLost(broker, evaluator, signal);
    watching.catch(() => undefined);
    await assert.rejects(evaluating, /all of its greedy tickets died, .*\n.*no queue has it/);
    stopping.abort();
    await assert.rejects(watching, { name: 'AbortError' });
    await taking;
  },
);

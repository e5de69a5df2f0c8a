import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { watchDeadLetters } from '../../shared/broker/dead-letter-watch.js';
import { Evaluator } from '../../shared/run/evaluation/evaluator.js';
import type { EvalProblem } from '../../shared/run/evaluation/solve-rates.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { messageIdOf } from '../../shared/wire/ticket-ids.js';
import type { FoundVersion } from './find-version.js';
import type { MeasureOptions } from './measure-options.js';
import type { OpenedWeights } from './open-weights.js';

/** Makes the bus look like that of a run whose newest version is the one to be measured. */
export async function prepare(
  broker: Broker,
  { config, version }: FoundVersion,
  { samplerPath, samplingSessionId, adapter }: OpenedWeights,
  problems: number,
): Promise<void> {
  await broker.ensureRun({ trainTickets: 1, evalTickets: 2 * problems });
  await new RunConfigStore(broker).put(config);
  const session = samplingSessionId === undefined ? {} : { samplingSessionId };
  const manifest = { version, samplerPath, ...session, smallestUsefulVersion: version };
  await broker.policy.publish(manifest, adapter);
}

const progressEveryMs = 500;

/** Has the version answer the problems, showing how far it is. */
export async function evaluate(
  broker: Broker,
  problems: readonly EvalProblem[],
  { request, version: { config, version }, screen, log }: MeasureOptions,
  signal: AbortSignal,
): Promise<EvalResult> {
  const evaluator = new Evaluator({
    config,
    problems,
    samples: request.samples,
    publish: async (ticket, until) => {
      const subject = broker.names.subjects.tickets('eval');
      const msgId = messageIdOf(ticket);
      await broker.publish(subject, Ticket, ticket, { msgId, signal: until });
    },
    newestVersion: () => version,
    isQuarantined: () => false, // nobody trains here, so nobody is audited
    log,
  });
  const over = new AbortController();
  const listening = AbortSignal.any([signal, over.signal]);
  const inBackground = [
    consume(
      broker,
      'scored.eval',
      ScoredGroup,
      { signal: listening, log, stage: 'learner', concurrency: 4 },
      ({ value }) => {
        evaluator.receive(value);
        return Promise.resolve();
      },
    ),
    watchDeadLetters(broker.deadLetters.read(listening), ({ ticketId }) => {
      evaluator.die(ticketId);
    }),
  ];
  const progress = setInterval(() => {
    const { issued, open } = evaluator.tickets;
    screen.status(`version ${version}: ${issued - open} of ${issued} answered`);
  }, progressEveryMs);
  try {
    return await evaluator.run(version, signal);
  } finally {
    clearInterval(progress);
    screen.status('');
    over.abort();
    await Promise.allSettled(inBackground);
  }
}

import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { NatsBinary } from '../nats-server/binary.js';
import type { StopSignals } from '../processes/stop-signals.js';
import type { Screen } from '../up/screen.js';
import { readyMs, usualActors } from '../up/up-config.js';
import type { EvalConfig } from './eval-config.js';
import type { FoundVersion } from './find-version.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { UserError } from '../../shared/base/errors.js';
import { TaskScope } from '../../shared/base/task-scope.js';
import type { EvalProblem } from '../../shared/run/evaluation/solve-rates.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import { Fleet } from '../processes/fleet.js';
import {
  graceMs,
  runIdentities,
  stopRanks,
  workerMembers,
  type BackendPlace,
} from '../processes/members.js';
import type { NatsPlace } from '../processes/service-command.js';
import { accessWith } from '../nats-server/keys.js';
import { startNats } from '../nats-server/start.js';
import {
  openBackend,
  weightsFromBackend,
  weightsFromStore,
  type BackendOptions,
  type OpenedWeights,
} from './open-weights.js';
import type { Broker } from '../../shared/broker/broker.js';
import { watchDeadLetters } from '../../shared/broker/dead-letter-watch.js';
import { Evaluator, receiveAnswers } from '../../shared/run/evaluation/evaluator.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { loadRunData } from '../../shared/run/run-data.js';

/** The version and the problems of an evaluation, and where it runs. */
export interface MeasureOptions extends BackendOptions {
  readonly problems: readonly EvalProblem[];
  readonly backend: BackendPlace;
  readonly natsBinary: NatsBinary;
  readonly screen: Screen;
  readonly stop: StopSignals;
}

/**
 * Evaluates one version outside its run, with separate processes and a separate NATS server that end with it.
 * From the run it needs only the result of `findVersion` and the saved weights.
 *
 * @throws {FleetError} when a process ended that it cannot do without; {UserError} when something that it needs
 *   does not exist, or all sampled or all greedy tickets died.
 */
export async function measure(options: MeasureOptions): Promise<EvalResult> {
  const { request, found, version, problems, backend, screen, stop, folder } = options;
  await using fleet = new Fleet({ logFolder: folder, report: screen.warn, hurry: stop.hurry });
  const over = new AbortController();
  const signal = AbortSignal.any([stop.stop, fleet.failed, over.signal]);
  const deadlineMs = readyMs(request);
  try {
    const nats = await startBus(options, fleet, deadlineMs);
    await using client = await openBackend(options, fleet, backend, signal);
    await using opened =
      client === undefined
        ? undefined
        : await weightsFromBackend(client, found, version, screen.warn);
    const weights = opened ?? weightsFromStore(found, version)!;

    const run = found.run; // alone on its server, so it can be called like the one that it copies
    const identity = { role: 'learner' } as const; // as the learner does in a run
    await using broker = await connectBroker({
      natsUrl: nats.natsUrl,
      ...accessWith(nats.keyFolder, identity),
      run,
      client: 'eval',
      identity,
      log: options.log,
      signal,
    });
    await prepare(broker, version, weights, problems.length);
    const workers = workerMembers(
      // `prepare` publishes the version without a canary.
      { ...found, ...actorNaming(options), requireCanary: false },
      { run, nats, backend },
    );
    for (const member of workers) void fleet.start(member);
    const names = workers.map(({ name }) => name);
    await fleet.ready(names, deadlineMs, signal);
    return await evaluate(broker, options, signal);
  } catch (caught) {
    fleet.failed.throwIfAborted(); // the cause; other errors follow from it
    throw caught;
  } finally {
    over.abort();
  }
}

/**
 * The held-out problems that the request names.
 *
 * @throws {UserError} if they are not those of the run, or there are not so many.
 */
export async function heldOut(
  { config }: FoundVersion,
  { problems, skipProblems }: EvalConfig,
): Promise<readonly EvalProblem[]> {
  const { dataset } = await loadRunData(config);
  const end = skipProblems + (problems ?? 1);
  if (end > dataset.test.length) {
    const skipped = skipProblems === 0 ? '' : `--skip-problems ${skipProblems} and `;
    throw new UserError(
      `${skipped}--problems ${problems ?? 1} need ${end} held-out problems, but there are ` +
        `${dataset.test.length}; ask for fewer`,
    );
  }
  return dataset.test.slice(skipProblems, problems && end);
}

/** Called otherwise than the run's own actors, which may be sampling at the same engine. */
function actorNaming({ request, found }: Pick<MeasureOptions, 'request' | 'found'>) {
  const actors = request.actors ?? usualActors(found.sampler);
  return { actors, evalActors: 0, actorsNamed: 'measure' };
}

async function startBus(
  { request, found, natsBinary, folder, stop }: MeasureOptions,
  fleet: Fleet,
  deadlineMs: number,
): Promise<NatsPlace> {
  const nats = await startNats(
    natsBinary.path,
    join(folder, 'nats'),
    fleet.logPath('nats-server'),
    {
      run: found.run,
      identities: runIdentities(actorNaming({ request, found })),
      deadlineMs,
      deadlineFlag: '--ready-seconds',
      signal: stop.stop,
    },
  );
  fleet.adopt('nats-server', nats.process, { stopRank: stopRanks.nats, stopGraceMs: graceMs });
  return { natsUrl: nats.url, keyFolder: nats.keyFolder };
}

/** Sets up the broker like that of a run whose newest version is the one to be measured. */
async function prepare(
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
const lostEveryMs = 1_000;

/**
 * Records tickets that are in no queue and have no dead letter: a sender of many letters has only some of them kept. Rejects
 * once `signal` aborts.
 */
export async function watchLost(
  broker: Pick<Broker, 'tickets' | 'pass'>,
  evaluator: Pick<Evaluator, 'awaited' | 'recordDeath'>,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    await sleep(lostEveryMs, undefined, { signal });
    const queue = await broker.tickets.poll('eval');
    if (queue?.isWhole !== true) continue;
    const queued = new Set(queue.tickets.map(({ ticket }) => ticket.ticketId));
    const gone = evaluator.awaited.filter(({ ticketId }) => !queued.has(ticketId));
    if (gone.length === 0) continue;
    const passage = broker.pass('eval', () => 0);
    // Waits at least once: a dead letter may be there and not be read yet.
    do await sleep(lostEveryMs, undefined, { signal });
    while (!(await passage.isOver()));
    const open = new Set(evaluator.awaited.map(({ ticketId }) => ticketId));
    const held = new Set(passage.heldLong.map(({ ticketId }) => ticketId));
    for (const { ticketId } of gone) {
      if (!open.has(ticketId) || held.has(ticketId)) continue;
      evaluator.recordDeath(ticketId, 'no queue has it, nor a dead letter');
    }
  }
}

/** Has the version answer the problems, and shows the progress. */
async function evaluate(
  broker: Broker,
  { request, problems, version: { config, version }, screen, log }: MeasureOptions,
  signal: AbortSignal,
): Promise<EvalResult> {
  const evaluator = new Evaluator({
    config,
    problems,
    samples: request.samples,
    publish: (ticket, until) => broker.tickets.publish(ticket, { signal: until }),
    newestVersion: () => version,
    isQuarantined: () => false, // nothing trains here, so no actor is audited
    log,
  });
  await using listening = new TaskScope(signal); // if receiving fails, so does the evaluation
  listening.start((until) => receiveAnswers(broker, evaluator, { signal: until, log }));
  listening.start((until) =>
    watchDeadLetters(broker.deadLetters.read(until), ({ ticketId }, { stage, reason }) => {
      evaluator.recordDeath(ticketId, `${stage}: ${reason}`);
    }),
  );
  listening.start((until) => watchLost(broker, evaluator, until));
  const progress = setInterval(() => {
    const { issued, open } = evaluator.tickets;
    screen.status(`version ${version}: ${issued - open} of ${issued} answered`);
  }, progressEveryMs);
  try {
    return await evaluator.run(version, listening.signal);
  } finally {
    clearInterval(progress);
    screen.status('');
  }
}

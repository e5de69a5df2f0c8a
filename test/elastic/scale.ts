import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Summary } from '../../cli/up/summary.js';
import type { ServiceProcess } from '../support/service-process.js';
import { TrainingGround } from '../support/training-ground.js';

export interface Scaling {
  readonly actors: number;
  readonly staleness: { readonly max: number; readonly bound: number };
  /** [added actors] from an actor's readiness to its first group stored in NATS. */
  readonly firstContributions: readonly Contribution[];
  /** Steps with one actor, with all, and with one again. */
  readonly steps: readonly [number, number, number];
  readonly trained: number; // groups
}

/** The cost of an actor's first group. */
export interface Contribution {
  /** Processor time that the actor used, including its answers to our requests: its own share. */
  readonly processorSeconds: number;
  /** Elapsed time: the processor time divided by its share of a core, plus its wait for a ticket. */
  readonly wallSeconds: number;
}

/**
 * Trains with one actor, then with many, then with one again: real processes, the same learner throughout.
 *
 * @param note called at every phase.
 * @throws AssertionError if the learner was restarted or ended, an actor did not leave cleanly, the ticket counts do not
 *   balance, or data was older than allowed.
 */
export async function scaleActors(
  actors: number,
  stepsEach: number,
  note: (line: string) => void,
): Promise<Scaling> {
  const bound = 2;
  const groupsPerBatch = 2 * actors; // more tickets than actors, so that none waits for one
  await using ground = await TrainingGround.prepare('elastic');
  const learner = ground.learner({
    'max-steps-off-policy': bound,
    'groups-per-batch': groupsPerBatch,
    'num-minibatches': 2,
  });
  const start = (i: number): ServiceProcess => ground.actor(`actor-${i}`, '--concurrency=1');
  const first = start(0);
  await ground.startScoring();
  await trainTo(learner, stepsEach);
  note(`1 actor: step ${step(learner)}`);

  const before = step(learner);
  const came: ServiceProcess[] = [];
  const firstContributions: Contribution[] = [];
  while (came.length + 1 < actors) {
    // Doubles each time, as a HorizontalPodAutoscaler does.
    const more = Math.min(came.length + 1, actors - 1 - came.length);
    const wave = Array.from({ length: more }, (_, i) => start(came.length + i + 1));
    firstContributions.push(...(await Promise.all(wave.map(firstContribution))));
    came.push(...wave);
    note(`${came.length + 1} actors: each has contributed, step ${step(learner)}`);
  }
  await trainTo(learner, step(learner) + stepsEach);
  const together = step(learner);
  note(`${actors} actors: step ${together}`);

  const codes = await Promise.all(came.map((actor) => actor.stop('SIGTERM')));
  assert.deepEqual(new Set(codes), new Set([0]));
  await trainTo(learner, step(learner) + stepsEach);
  const after = step(learner);
  note(`1 actor again: step ${after}`);

  assert.equal(learner.log.filter(({ msg }) => msg === 'leader lease acquired').length, 1);
  assert.equal(await learner.stop('SIGTERM'), 0, learner.errors + learner.tail);
  assert.equal(await first.stop('SIGTERM'), 0, first.errors + first.tail);
  const { groups, staleness, steps } = Summary.parse(await ground.summary());
  assert(steps >= after);
  const { issued, trained, skippedZeroVariance, stale, dead, outstanding } = groups;
  assert.equal(trained, steps * groupsPerBatch);
  assert.deepEqual([stale, dead], [0, 0]);
  assert.equal(issued, trained + skippedZeroVariance + outstanding);
  assert(staleness.max <= bound);
  return {
    actors,
    staleness: { max: staleness.max, bound },
    firstContributions,
    steps: [before, together - before, after - together],
    trained,
  };
}

/** Waits until an actor is ready and then until its first group is stored. */
async function firstContribution(actor: ServiceProcess): Promise<Contribution> {
  await untilServed(actor, '/readyz', ({ status }) => status === 200);
  const readyAt = performance.now();
  const atReadiness = processorSeconds(await untilServed(actor, '/metrics', () => true));
  const published = /^broker_messages_published_total\{queue="rollouts"\} [1-9]/m;
  const page = await untilServed(actor, '/metrics', ({ body }) => published.test(body));
  return {
    processorSeconds: processorSeconds(page) - atReadiness,
    wallSeconds: (performance.now() - readyAt) / 1_000,
  };
}

function processorSeconds({ body }: Answer): number {
  return Number(/^process_cpu_seconds_total (\S+)$/m.exec(body)![1]);
}

interface Answer {
  readonly status: number;
  readonly body: string;
}

/** Retries a request whose answer a busy machine cut off. */
async function untilServed(
  actor: ServiceProcess,
  path: '/readyz' | '/metrics',
  holds: (answer: Answer) => boolean,
): Promise<Answer> {
  for (;;) {
    const answer = await actor.ask(path).catch(() => undefined);
    if (answer !== undefined && holds(answer)) return answer;
    if (actor.hasEnded) throw new Error(`an actor has ended: ${actor.errors}${actor.tail}`);
    await sleep(50);
  }
}

function step(learner: ServiceProcess): number {
  return Number(learner.log.findLast(({ msg }) => msg === 'step trained')?.['step'] ?? 0);
}

async function trainTo(learner: ServiceProcess, steps: number): Promise<void> {
  await learner.says(({ msg, step: done }) => msg === 'step trained' && Number(done) >= steps);
}

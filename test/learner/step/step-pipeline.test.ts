import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { register } from 'prom-client';
import { Meter } from '../../../learner/cost/meter.js';
import { TokenAccount } from '../../../learner/cost/token-account.js';
import type { Consumed } from '../../../learner/checkpoints/checkpointer.js';
import { Admission } from '../../../learner/groups/admission.js';
import type { ArrivedGroup } from '../../../learner/groups/check-scored-group.js';
import { GroupStats } from '../../../learner/groups/group-stats.js';
import { UnackedGroups } from '../../../learner/groups/unacked-groups.js';
import type { StepEvent } from '../../../learner/report/history.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import { LearningRateSchedule } from '../../../learner/step/learning-rate-schedule.js';
import { StepPipeline } from '../../../learner/step/step-pipeline.js';
import { type Difficulties, difficultiesOf } from '../../../learner/tickets/difficulty-mix.js';
import { TicketSource } from '../../../learner/tickets/ticket-source.js';
import { groupsAwaitingCheckpoint } from '../../../shared/broker/run-layout.js';
import type { Lease } from '../../../shared/broker/delivery.js';
import { Changes } from '../../../shared/base/changes.js';
import { TaskScope } from '../../../shared/base/task-scope.js';
import { newTicketKey, TicketIds } from '../../../shared/wire/ticket-ids.js';
import { silent } from '../../support/log.js';
import { rolloutGroup, runConfig, scoredGroup } from '../../support/messages.js';
import { gate, until } from '../../support/waiting.js';

const config = runConfig({
  groupSize: 2,
  groupsPerBatch: 1,
  maxStepsOffPolicy: 2,
  replayShare: 0.5,
  schedule: { kind: 'linear', warmupSteps: 0, finalShare: 0 },
});
const progress = { progressBefore: 0, stepBefore: 0, maxSteps: 4, maxSeconds: Infinity };

/** Adds a group that is settled by the next checkpoint, as one without variance is. */
function skip(unacked: UnackedGroups, seq: number): void {
  const lease: Lease = { seq, working: () => undefined, ack: () => Promise.resolve() };
  unacked.hold(lease, undefined, `group ${seq}`);
  unacked.replace(seq, `group ${seq}`);
}

/** A pipeline whose backend answers at once, and what it told the others. */
function setUp(scope: TaskScope, checkpointEverySteps = 1, difficulties?: Difficulties) {
  const admission = new Admission<ArrivedGroup>(
    { ...config, maxSteps: 4 },
    { step: 0, version: 0 },
  );
  const tickets = new TicketSource(config, ['p-0', 'p-1'], {
    margin: 1,
    state: undefined,
    ids: new TicketIds(newTicketKey()),
    difficulties,
  });
  const told = {
    audited: [] as number[], // the versions that trained
    steps: [] as StepEvent[],
    saved: [] as number[], // steps
    written: [] as Consumed[],
    retired: [] as number[][], // the versions to keep, at each retirement
    recording: undefined as Promise<void> | undefined, // what the record of a step waits for
  };
  const unacked = new UnackedGroups();
  const pipeline = new StepPipeline(
    {
      config,
      scope,
      admission,
      tickets,
      changes: new Changes(),
      unacked,
      account: new TokenAccount(),
      meter: new Meter(() => 0),
      groupStats: new GroupStats(),
      idle: new IdleClock(() => 0),
      learningRates: new LearningRateSchedule(config, progress, () => 0),
      isCheckpointed: (step) => step % checkpointEverySteps === 0,
      checkpointer: {
        save: (step: number) => {
          told.saved.push(step);
          return {
            write: async (consumed: Consumed) => {
              told.written.push(consumed);
              await unacked.settle(consumed.messages);
            },
            discard: () => Promise.resolve(),
          };
        },
      } as never,
      publisher: {
        publish: () => Promise.resolve(),
        retire: (versions: Iterable<number>) =>
          Promise.resolve(void told.retired.push([...versions])),
      } as never,
      audit: {
        observe: ({ version }) => {
          told.audited.push(version);
          return Promise.resolve({});
        },
        isQuarantined: () => false,
      },
      surroundings: () => ({}),
      onStep: async (event) => {
        await told.recording;
        told.steps.push(event);
      },
      versionsInUse: () => [7],
      log: silent,
    },
    { hasDiverged: false, checkStep: () => true } as never,
  );
  /** Trains on one group, sampled by the version that its ticket names. */
  const step = async () => {
    while (admission.offer() !== undefined) admission.issue();
    const { order, issuedAtVersion } = admission.table
      .entries()
      .find(({ state }) => state === 'issued')!;
    const ticket = tickets.ticketAt(order, 0, issuedAtVersion!);
    const scored = scoredGroup({ group: rolloutGroup({ ticket }) });
    const arrivedAtVersion = admission.version;
    const group = { scored, seq: order, sampledBy: [issuedAtVersion!], arrivedAtVersion };
    admission.arrive(order, group, group.sampledBy);
    const { staleness } = admission.cut()!;
    pipeline.take({
      number: admission.step + 1,
      sentGroups: [{ group, staleness: staleness[0]!, substep: 0 }],
      results: [],
      optimStepMetrics: [{}, {}].map((metrics) => Promise.resolve(metrics)),
    } as never);
    await pipeline.drained();
  };
  return { pipeline, step, told, unacked, admission };
}

describe('the step pipeline, for steps of one group', () => {
  it('a step is audited and reported with the version that trained on it, one before the version that it makes', async () => {
    await using scope = new TaskScope();
    const { step, told } = setUp(scope);
    for (let i = 0; i < 3; i++) await step();
    assert.deepEqual(told.audited, [0, 1, 2]);
    assert.deepEqual(
      told.steps.map(({ version, metrics }) => [version, metrics['staleness/in_queue/mean']]),
      [
        [1, 0],
        [2, 0],
        [3, 0],
      ],
    );
  });

  it('each confirmed step and optimizer step is counted', async () => {
    const counts = async () =>
      Promise.all(
        ['rl_steps_total', 'rl_optimizer_steps_total'].map(async (name) => {
          const { values } = await register.getSingleMetric(name)!.get();
          return values[0]!.value;
        }),
      );
    const [steps, optimizerSteps] = await counts();
    await using scope = new TaskScope();
    const { step } = setUp(scope);
    await step();
    assert.deepEqual(await counts(), [steps! + 1, optimizerSteps! + 2]);
  });

  it('a checkpoint names the version and the progress of its weights, and the problems that they were trained on', async () => {
    await using scope = new TaskScope();
    const { pipeline, step, told } = setUp(scope);
    await step();
    await step();
    await pipeline.finish();
    assert.deepEqual(
      told.written.map(({ step, version, progress }) => [step, version, progress]),
      [
        [1, 1, 0.25],
        [2, 2, 0.5],
      ],
    );
    const rollouts = told.written.map(({ curriculum }) =>
      curriculum!.tried.reduce((sum, [, count]) => sum + count, 0),
    );
    assert.deepEqual(rollouts, [2, 4]);
  });

  it('a checkpoint has the groups of each difficulty up to its step', async () => {
    await using scope = new TaskScope();
    const difficulties = difficultiesOf([{ difficulty: 'easy' }, { difficulty: 'hard' }]);
    const { pipeline, step, told } = setUp(scope, 1, difficulties);
    await step();
    await step();
    await pipeline.finish();
    const groups = told.written.map(({ curriculum }) =>
      curriculum!.difficulties!.reduce((sum, [, count]) => sum + count, 0),
    );
    assert.deepEqual(groups.map(Math.round), [1, 2]); // one that is older counts a little less
  });

  it('a checkpoint comes early, once a quarter of the groups that the queue has room for wait for one', async () => {
    await using scope = new TaskScope();
    const { step, told, unacked } = setUp(scope, 100);
    const wait = (seq: number) => {
      skip(unacked, seq);
    };
    const quarter = groupsAwaitingCheckpoint.least / 4;
    for (let seq = 1; seq < quarter; seq++) wait(seq);
    await step();
    assert.deepEqual(told.saved, []);
    wait(quarter);
    for (let i = 0; i < 2; i++) await step();
    assert.deepEqual(told.saved, [2]); // step 3 judges it, and none is saved meanwhile
    assert.deepEqual(
      told.written.map(({ step, messages }) => [step, messages.length]),
      [[2, quarter]],
    );
  });

  it('each step is saved while the groups that wait for a checkpoint take up half of the room, so that two steps fit', async () => {
    await using scope = new TaskScope();
    const { step, told, unacked } = setUp(scope, 100);
    const half = groupsAwaitingCheckpoint.least / 2;
    for (let seq = 0, taken = 0; taken < 3; taken++) {
      for (const end = seq + half; seq < end;) skip(unacked, ++seq);
      assert(unacked.size <= 2 * half, `before step ${taken + 1}`);
      await step();
    }
    assert.deepEqual(told.saved, [1, 2, 3]);
  });

  it('retirement keeps the versions at which outstanding tickets were issued, and those of evaluations', async () => {
    await using scope = new TaskScope();
    const { step, told } = setUp(scope);
    await step(); // two of the three tickets issued at version 0 are still out
    assert.deepEqual(told.retired, [[0, 0, 7]]);
    await step(); // one of them, and one issued at version 1
    assert.deepEqual(told.retired.at(-1), [0, 1, 7]);
  });

  it('retirement keeps the versions whose steps are not recorded, since an evaluation of them may be due', async () => {
    await using scope = new TaskScope();
    const { step, told, admission } = setUp(scope);
    const room = gate();
    told.recording = room.opened; // the disk is full
    const steps: Promise<void>[] = [];
    for (const version of [1, 2, 3]) {
      steps.push(step());
      await until(() => admission.confirmedVersion === version);
    }
    assert.equal(told.retired.length, 0);
    room.open();
    await Promise.all(steps);
    const unrecorded = told.retired.map((kept) => kept.slice(kept.indexOf(7) + 1));
    assert.deepEqual([unrecorded[0], unrecorded.at(-1)], [[2, 3], []]);
  });
});

describe('the learning rate of a run of four steps that falls linearly to 0', () => {
  it('the first step has the full rate, since no step was trained before it', () => {
    const rates = new LearningRateSchedule(config, progress, () => 0);
    assert.deepEqual(
      [1, 2, 3, 4].map((step) => rates.settingsFor(step).learningRate),
      [1, 0.75, 0.5, 0.25].map((share) => share * config.adam.learningRate),
    );
  });
});

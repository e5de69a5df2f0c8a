import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { register } from 'prom-client';
import { Checkpointer } from '../../learner/checkpoints/checkpointer.js';
import {
  type EvalEvent,
  firstEvaluation,
  noSteps,
  readHistory,
  type StepEvent,
  withStep,
} from '../../learner/report/history.js';
import { IdleClock } from '../../learner/step/idle-clock.js';
import { summarize } from '../../learner/report/summary.js';
import type { Bill } from '../../learner/cost/bill.js';
import { GroupStats } from '../../learner/groups/group-stats.js';
import { TrainingClock } from '../../learner/session/time-limits.js';
import { UnackedGroups } from '../../learner/groups/unacked-groups.js';
import type { Checkpoint, SavedState } from '../../shared/wire/ledger.js';
import { newTicketKey } from '../../shared/wire/ticket-ids.js';
import type { RunEvent } from '../../shared/wire/run-event.js';
import { gate, silent } from '../support/broker.js';
import {
  checkpoint,
  evalResult,
  rollout,
  rolloutGroup,
  scoredGroup,
  ticket,
} from '../support/messages.js';

describe('the idle clock', () => {
  it('the idle clock counts only time without work in flight, by its cause', async () => {
    let now = 0;
    const clock = new IdleClock(() => now);
    clock.waitFor('groups');
    now = 3;
    const [first, second] = [gate(), gate()];
    const [a, b] = [clock.during(first.opened), clock.during(second.opened)];
    now = 10;
    first.open();
    await a;
    now = 20;
    second.open();
    await b; // idle again from here
    now = 21;
    clock.waitFor('window');
    now = 23;
    clock.waitFor(undefined);
    now = 50;
    assert.deepEqual(clock.seconds, { groups: 4, window: 2, version: 0 });
  });

  it('the idle clock treats failed work as ended', async () => {
    let now = 0;
    const clock = new IdleClock(() => now);
    clock.waitFor('version');
    await assert.rejects(clock.during(Promise.reject(new Error('lost'))));
    now = 2;
    assert.equal(clock.seconds.version, 2);
  });
});

describe('the training clock', () => {
  it('the training clock adds up its running times and aborts at the limit', () => {
    let now = 0;
    const clock = new TrainingClock(1, () => now);
    {
      using running = clock.start();
      now = 40;
      assert(!running.signal.aborted);
    }
    now = 1_000; // an evaluation ran meanwhile
    assert.equal(clock.seconds, 40);
    {
      using running = clock.start();
      now = 1_020;
      assert(!running.signal.aborted);
    }
    assert(clock.isOver);
    using again = clock.start();
    assert(again.signal.aborted);
  });
});

describe('the unacknowledged groups', () => {
  it('unacked groups count as awaiting a checkpoint once their tickets are consumed or replaced', async () => {
    const metric = async () => {
      const text = await register.getSingleMetricAsString('rl_groups_awaiting_checkpoint');
      return Number(text.trim().split(' ').at(-1));
    };
    const unacked = new UnackedGroups();
    for (const seq of [1, 2, 3]) {
      const lease = { seq, working: () => undefined, ack: () => Promise.resolve() };
      unacked.hold(lease, seq + 10, `m-${seq}`);
    }
    assert.deepEqual(
      unacked.countAwaiting((order) => order < 12),
      { groups_awaiting_checkpoint: 1 },
    );
    unacked.replace(3, 'm-3');
    assert.deepEqual(
      unacked.countAwaiting((order) => order < 12),
      { groups_awaiting_checkpoint: 2 },
    );
    assert.equal(await metric(), 2);
    await unacked.settle(unacked.covered((order) => order < 12));
    assert.equal(await metric(), 0);
  });

  it('unacked groups never acknowledge a message under the number of one that the server has lost', async () => {
    const acknowledged: string[] = [];
    const unacked = new UnackedGroups();
    const hold = (id: string, order: number) => {
      const ack = () => Promise.resolve(void acknowledged.push(id));
      return unacked.hold({ seq: 1, working: () => undefined, ack }, order, id);
    };
    assert(hold('lost', 10));
    const covered = unacked.covered(() => true);
    assert(hold('new', 11));
    unacked.replace(1, 'lost');
    await unacked.settle(covered);
    assert.deepEqual(acknowledged, []);
    assert.deepEqual(
      unacked.covered((order) => order === 10),
      [],
    );
    await unacked.settle(unacked.covered((order) => order === 11));
    assert.deepEqual(acknowledged, ['new']);
  });
});

describe('the checkpointer', () => {
  function setUp({ keepEverySteps = 0, states = [] as SavedState[] } = {}) {
    const happened: string[] = [];
    const ledger: Checkpoint[] = [];
    const saved = gate();
    const unacked = new UnackedGroups();
    const record = (event: string) => () => {
      happened.push(event);
      return Promise.resolve();
    };
    for (const seq of [1, 2, 3]) {
      const working = () => void happened.push(`working ${seq}`);
      unacked.hold({ seq, working, ack: record(`ack ${seq}`) }, seq + 10, `m-${seq}`);
    }
    const checkpointer = new Checkpointer({
      checkpoints: {
        stateOnDisk: undefined,
        write: (checkpoint) => {
          ledger.push(structuredClone(checkpoint));
          return record(`ledger ${checkpoint.step} ${checkpoint.statePath}`)();
        },
      },
      client: { deleteCheckpoint: (path) => record(`delete ${path}`)() },
      run: {
        saveState: async (name) => {
          happened.push(`save ${name}`);
          await saved.opened;
          return `tinker://run/weights/${name}`;
        },
      },
      ticketKey: newTicketKey(),
      usualHoldSeconds: () => undefined,
      unacked,
      idle: new IdleClock(() => 0),
      restored: { step: 4, path: 'tinker://run/weights/old' },
      states,
      keepEverySteps,
      log: silent,
    });
    const counts = {
      issued: 0,
      trained: 0,
      skippedZeroVariance: 0,
      stale: 0,
      dead: 0,
      outstanding: 0,
    };
    const table = { nextOrder: 0, consumedBelow: 0, consumedAbove: [], counts };
    return { happened, ledger, saved, unacked, checkpointer, table };
  }

  it('the checkpointer acknowledges consumed messages only after the ledger names their state', async () => {
    const { happened, saved, unacked, checkpointer, table } = setUp();
    const consumed = new Set([11, 13]); // orders
    const covered = () => unacked.covered((order) => consumed.has(order));
    const saving = checkpointer.save(5);
    const written = saving.write({
      step: 5,
      version: 5,
      progress: 0.5,
      table,
      rewinds: [],
      messages: covered(),
    });
    consumed.add(12); // by the next step
    assert.deepEqual(happened, ['save state-000005']);
    saved.open();
    await written;
    const path = 'tinker://run/weights/state-000005';
    assert.deepEqual(happened, ['save state-000005', `ledger 5 ${path}`, 'ack 1', 'ack 3']);
    assert.deepEqual(
      covered().map(({ lease }) => lease.seq),
      [2],
    );
  });

  it('the checkpointer deletes a discarded state and saves its step again on request', async () => {
    const { happened, saved, checkpointer, table } = setUp();
    saved.open();
    await checkpointer.save(5).discard();
    assert.equal(checkpointer.writtenStep, 4);
    const consumed = { step: 5, version: 5, progress: 0.5, table, rewinds: [], messages: [] };
    await checkpointer.save(5).write(consumed);
    assert.equal(checkpointer.writtenStep, 5);
    const path = 'tinker://run/weights/state-000005';
    assert.deepEqual(happened, [
      'save state-000005',
      `delete ${path}`,
      'save state-000005',
      `ledger 5 ${path}`,
    ]);
  });

  it('unacked groups extend the ack wait of exactly the messages that no checkpoint covers', async () => {
    const { happened, saved, unacked, checkpointer, table } = setUp();
    saved.open();
    const messages = unacked.covered((order) => order !== 12);
    const consumed = { step: 5, version: 5, progress: 0, table, rewinds: [], messages };
    await checkpointer.save(5).write(consumed);
    happened.length = 0;
    unacked.extendLeases();
    assert.deepEqual(happened, ['working 2']);
  });

  it('the checkpointer saves each step once and keeps the two newest states', async () => {
    const { happened, saved, checkpointer, table } = setUp();
    saved.open();
    const consumed = { version: 5, progress: 0.5, table, rewinds: [], messages: [] };
    await checkpointer.save(4).write({ ...consumed, step: 4 }); // the restored one
    await checkpointer.save(5).write({ ...consumed, step: 5 });
    await checkpointer.save(5).write({ ...consumed, step: 5 });
    await checkpointer.save(6).write({ ...consumed, step: 6 });
    assert.deepEqual(
      happened.filter((event) => !event.startsWith('ledger')),
      ['save state-000005', 'save state-000006', 'delete tinker://run/weights/old'],
    );
  });

  it('the checkpointer keeps every tenth step and the best state, across sessions', async () => {
    const former = { step: 2, path: 'tinker://former/weights/state-000002' };
    const { happened, ledger, saved, checkpointer, table } = setUp({
      keepEverySteps: 10,
      states: [former],
    });
    saved.open();
    for (let step = 5; step <= 60; step++) {
      const consumed = { step, version: step, progress: 0, table, rewinds: [], messages: [] };
      await checkpointer.save(step).write(consumed);
      await checkpointer.scored(step, step === 17 ? 0.5 : 0.1);
    }
    const states = ledger.at(-1)!.states!;
    const left = states.filter(({ path }) => !happened.includes(`delete ${path}`));
    assert.deepEqual(
      left.map(({ step }) => step),
      [10, 17, 20, 30, 40, 50, 59, 60],
    );
    assert.deepEqual(states, left); // written again with the last score
  });
});

describe('the history of a run', () => {
  const step = (n: number, reward: number, version = n): StepEvent => ({
    v: 1,
    at: n,
    kind: 'step',
    step: n,
    version,
    metrics: { reward },
  });
  const evaluated = (version: number): EvalEvent => ({
    ...{ v: 1, at: 0, kind: 'eval', result: evalResult({ version }) },
  });

  it('the history ends at the announced version, without the steps that a crash rolled back', async () => {
    const events: RunEvent[] = [
      { v: 1, at: 0, kind: 'version', version: 0 },
      evaluated(0),
      ...[step(1, 0.1), step(2, 0.2), step(3, 0.3)],
      evaluated(3),
      { v: 1, at: 9, kind: 'version', version: 4 },
      evaluated(4),
      ...[step(2, 0.25, 5), step(3, 0.35, 6)],
      ...[evaluated(5), evaluated(6)],
      { v: 1, at: 9, kind: 'version', version: 7 },
    ];
    async function* read() {
      for (const event of events) yield await Promise.resolve(event);
      await new Promise(() => undefined); // live from here: reading would never end
    }
    const history = await readHistory({ read } as never, 7, 2);
    assert.deepEqual(history.steps, [step(1, 0.1), step(2, 0.25, 5)]);
    // Version 4 is that of step 1, published again.
    assert.deepEqual(history.evals, [evaluated(0), evaluated(4), evaluated(5)]);
    assert.deepEqual([...history.undoneVersions], [2, 3, 6]);
  });

  it('the history keeps the evaluation of restored weights that got the number of an undone step', async () => {
    const rewinds = [{ from: 3, to: 2 }];
    const events: RunEvent[] = [
      { v: 1, at: 0, kind: 'version', version: 0 },
      ...[step(1, 0.1), step(2, 0.2)],
      { v: 1, at: 2, kind: 'version', version: 2 },
      step(3, 0.3), // the learner dies before it publishes version 3
      { v: 1, at: 9, kind: 'checkpoint', checkpoint: checkpoint({ step: 2, version: 2, rewinds }) },
      { v: 1, at: 9, kind: 'version', version: 3 },
      evaluated(3),
      { v: 1, at: 9, kind: 'version', version: 4 },
    ];
    const read = async function* () {
      for (const event of events) yield await Promise.resolve(event);
    };
    const history = await readHistory({ read } as never, 4, 2);
    assert.deepEqual(history.evals, [evaluated(3)]);
    assert.deepEqual([...history.undoneVersions], []);
  });

  it('the first evaluation is that of the weights which the run began with', () => {
    const steps = [step(1, 0.1, 3), step(2, 0.2, 4)];
    const of = (from: readonly StepEvent[], until: number, ...versions: number[]) =>
      firstEvaluation({ steps: from, evals: versions.map(evaluated) }, until)?.version;
    assert.equal(of(steps, 2, 0, 4), 0);
    assert.equal(of(steps, 2, 2, 4), 2); // resumed twice before its first step
    assert.equal(of(steps, 2, 3, 4), undefined);
    assert.equal(of([], 0, 1), 1);
    assert.equal(of(steps.slice(1), 2, 2), undefined); // it may be that of a step whose event is lost
  });
});

describe("the statistics of a step's groups", () => {
  it('the group statistics count each group once: on arrival if skipped, otherwise when trained', () => {
    const groupStats = new GroupStats();
    const make = (correct: boolean[], lengths: number[]) => {
      const rollouts = lengths.map((length) => ({
        ...rollout(length),
        stopReason: length === 4 ? ('length' as const) : ('stop' as const),
      }));
      const asked = ticket();
      const samplingParams = { ...asked.samplingParams, maxTokens: 4 };
      const group = rolloutGroup({ ticket: { ...asked, samplingParams }, rollouts });
      const { scores } = scoredGroup({ group });
      return scoredGroup({
        group,
        scores: scores.map((score, i) => ({
          ...score,
          isCorrect: correct[i]!,
          reward: Number(correct[i]),
          hasFormat: i === 0,
        })),
      });
    };
    const mixed = make([true, false], [2, 4]);
    groupStats.skipped(make([true, true], [1, 1]));
    groupStats.trained(mixed);
    const rates = groupStats.take();
    assert.equal(rates['env/all/correct'], 3 / 4);
    assert.equal(rates['env/all/format'], 2 / 4);
    assert.equal(rates['env/all/truncated'], 1 / 4);
    assert.equal(rates['ac_tokens_per_turn'], 8 / 4);
    assert.equal(rates['by_group/frac_all_good'], 1 / 2);
    assert.equal(rates['by_group/frac_mixed'], 1 / 2);
    // -logprob is 1/8, 2/8, … along each answer: 3/8 + 10/8 + 1/8 + 1/8 over 8 tokens.
    assert.equal(rates['entropy'], 15 / 64);
    assert.equal(rates['length_ks_distance'], 0);
  });

  it('the group statistics include the rewards that the majority of actors report', () => {
    const groupStats = new GroupStats();
    for (const [actor, reward] of [
      ['honest', 0.5],
      ['liar', 0],
      ['liar', 0],
    ] as const) {
      const { group, scores, ...rest } = scoredGroup();
      const paid = scores.map((score) => ({ ...score, reward }));
      groupStats.skipped({ ...rest, group: { ...group, actor }, scores: paid });
    }
    const rates = groupStats.take();
    assert.equal(rates['env/all/reward/upper'], 0.5);
    assert.equal(rates['env/all/reward/lower'], 0);
  });

  it('the exported mean reward is that of the last step that has answers', async () => {
    const exported = async () => {
      const { values } = await register.getSingleMetric('rl_reward')!.get();
      return values.map(({ value }) => value);
    };
    const groupStats = new GroupStats();
    const scored = scoredGroup({ group: rolloutGroup({ rollouts: [rollout(1), rollout(2)] }) });
    const paid = (rewards: readonly number[]) => ({
      ...scored,
      scores: scored.scores.map((score, i) => ({ ...score, reward: rewards[i]! })),
    });
    groupStats.skipped(paid([1, 1]));
    groupStats.trained(paid([-0.5, 0.25]));
    assert.equal(groupStats.take()['env/all/reward/total'], 0.4375);
    assert.deepEqual(await exported(), [0.4375]);
    groupStats.take();
    assert.deepEqual(await exported(), [0.4375]);
    groupStats.trained(paid([0, 0.5]));
    groupStats.take();
    assert.deepEqual(await exported(), [0.25]);
  });

  it('the group statistics separate replayed problems from fresh ones', () => {
    const groupStats = new GroupStats(({ problemId }) => problemId === 'again');
    const make = (problemId: string, correct: readonly boolean[]) => {
      const scored = scoredGroup({ group: rolloutGroup({ ticket: ticket({ problemId }) }) });
      const scores = scored.scores.map((score, i) => ({ ...score, isCorrect: correct[i]! }));
      return { ...scored, scores };
    };
    groupStats.trained(make('again', [true, false]));
    groupStats.skipped(make('new', [true, true]));
    groupStats.trained(make('new', [true, false]));
    const rates = groupStats.take();
    assert.equal(rates['replayed/group_share'], 1 / 3);
    assert.equal(rates['replayed/frac_mixed'], 1);
    assert.equal(rates['fresh/frac_mixed'], 1 / 2);
    assert.equal(rates['fresh/correct'], 3 / 4);
    assert.equal(new GroupStats().take()['replayed/group_share'], undefined);
  });

  it('the group statistics tell the solved share of new problems from that of rehearsed ones', async () => {
    const exported = async () => {
      const { values } = await register.getSingleMetric('rl_solved_share')!.get();
      return new Map(values.map(({ labels, value }) => [labels['kind'], value]));
    };
    const groupStats = new GroupStats(undefined, ({ problemId }) => problemId === 'known');
    const make = (problemId: string, correct: readonly boolean[]) => {
      const scored = scoredGroup({ group: rolloutGroup({ ticket: ticket({ problemId }) }) });
      const scores = scored.scores.map((score, i) => ({ ...score, isCorrect: correct[i]! }));
      return { ...scored, scores };
    };
    groupStats.skipped(make('known', [true, true]));
    groupStats.trained(make('unknown', [true, false]));
    groupStats.skipped(make('unknown', [false, false]));
    const rates = groupStats.take();
    assert.equal(rates['env/all/correct'], 3 / 6);
    assert.equal(rates['env/new/correct'], 1 / 4);
    assert.equal(rates['env/rehearsal/correct'], 1);
    assert.deepEqual(Object.fromEntries(await exported()), { all: 0.5, new: 0.25, rehearsal: 1 });

    groupStats.trained(make('unknown', [true, false]));
    assert.equal(groupStats.take()['env/rehearsal/correct'], undefined); // the step had none
    const ofOneKind = new GroupStats();
    ofOneKind.trained(make('unknown', [true, false]));
    assert.equal(ofOneKind.take()['env/new/correct'], undefined);
  });

  describe('the length distance', () => {
    const groupOf = (length: number) =>
      scoredGroup({ group: rolloutGroup({ rollouts: [rollout(length), rollout(length)] }) });
    const distance = (groupStats: GroupStats) => groupStats.take()['length_ks_distance'];

    it('the length distance is 0 while every answer is used, in whatever order', () => {
      const groupStats = new GroupStats();
      groupStats.trained(groupOf(2));
      groupStats.skipped(groupOf(3));
      assert.equal(distance(groupStats), 0);
      groupStats.trained(groupOf(9));
      assert.equal(distance(groupStats), 0);
    });

    it('the length distance grows with long answers that come too late', () => {
      const groupStats = new GroupStats();
      groupStats.trained(groupOf(2));
      groupStats.refused(groupOf(9));
      assert.equal(distance(groupStats), 0.5);
    });

    it('the length distance counts an attempt given up while it was sampled as the longest answers', () => {
      const groupStats = new GroupStats();
      for (let i = 0; i < 3; i++) groupStats.trained(groupOf(2));
      groupStats.givenUp(ticket({ groupSize: 2 })); // of at most 16 tokens
      assert.equal(distance(groupStats), 0.25);
      groupStats.trained(groupOf(16)); // used ones of that length, 1 of 4, and all of them, 2 of 5
      assert.equal(distance(groupStats), 2 / 5 - 1 / 4);
    });

    it('the length distance forgets what ended more than 1,024 attempts ago', () => {
      const groupStats = new GroupStats();
      groupStats.refused(groupOf(9));
      for (let i = 1; i < 1_024; i++) groupStats.trained(groupOf(2));
      assert.equal(distance(groupStats)!.toFixed(9), (1 / 1_024).toFixed(9));
      groupStats.trained(groupOf(2));
      assert.equal(distance(groupStats), 0);
    });
  });
});

describe('the summary', () => {
  const bill: Bill = {
    tokens: {
      ...{ sampled: 9, trained: 4, evaluated: 2, inFlight: 1, wasted: 2, wastedBy: { stale: 2 } },
      ...{ masked: 0, undone: 0, prompts: 7 },
    },
    heldSeconds: { sampler: 1.23456, trainer: 2, reward: 2 },
    gpuSeconds: { sampler: 0, trainer: 0, reward: 0 },
  };

  it('the summary covers the whole run and takes rates over the training time', () => {
    const metrics = { seconds: 2, idle_seconds: 0.5, 'scored/rollouts': 8, 'scored/tokens': 80 };
    const event = { v: 1, at: 0, kind: 'step' } as const;
    const summary = summarize({
      run: 'r',
      reason: 'max_steps',
      version: 2,
      wallSeconds: 9.87654,
      before: undefined,
      groups: { issued: 4, trained: 4, skippedZeroVariance: 0, stale: 0, dead: 0, outstanding: 0 },
      bill,
      totals: [0, 1, 0.5]
        .map((mean) => ({ ...metrics, 'staleness/mean': mean, 'staleness/max': 2 * mean }))
        .map((line, i) => ({ ...event, step: i + 1, version: i + 1, metrics: line }))
        .reduce(withStep, noSteps),
      after: evalResult({ version: 2, problems: 16, sampled: 0.5, greedy: 0.75 }),
    });
    assert.deepEqual(summary['staleness'], { mean: 0.5, max: 2 });
    assert.equal(summary['learnerIdleFraction'], 0.25);
    assert.equal(summary['steps'], 3);
    assert.deepEqual([summary['rolloutsPerSecond'], summary['tokensPerSecond']], [4, 40]);
    assert.deepEqual(summary['eval'], {
      before: null,
      after: { sampled: 0.5, greedy: 0.75, passAt: { '1': 0.25, '2': 0.5 } },
      problems: 16,
    });
    assert.equal(summary['wallSeconds'], 9.8765);
    assert.deepEqual(summary['cost'], {
      ...bill,
      heldSeconds: { sampler: 1.2346, trainer: 2, reward: 2 },
    });
  });
});

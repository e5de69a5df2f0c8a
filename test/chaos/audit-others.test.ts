import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { loadTokenizer, type Tokenizer } from '../../shared/model/tokenizer.js';
import { readModelDirectory } from '../../shared/model/model-directory.js';
import { openTask } from '../../shared/tasks/registry.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { Score, ScoredGroup } from '../../shared/wire/scored-group.js';
import { countdownSpec } from '../support/countdown-task.js';
import { auditEvals, type EvalEvidence } from './audit-evals.js';
import { auditLedger, type LedgerSight } from './audit-ledger.js';
import { keyOf, keyOfData } from './group-key.js';
import { Judgement } from './judgement.js';
import { Lineages } from './lineage.js';
import { StillWatch } from './still-watch.js';
import { datumOf } from '../../learner/step/datums.js';

const stateOf = (model: string, step: number) => `tinker://${model}/weights/state-${step}`;

describe("the auditor of the ledger's course", () => {
  const saves = (model: string, steps: readonly number[]) =>
    steps.map((step) => ({ model, seq: 10 + step, kind: 'state', name: `state-${step}` }) as const);
  const lineages = new Lineages([
    ...saves('a', [0, 3, 6]),
    { model: 'b', seq: 1, kind: 'load', name: stateOf('a', 3) },
    ...saves('b', [6]),
    ...saves('fresh', [0]),
  ]);
  const sight = (model: string, step: number, isAfterDamage = false): LedgerSight => ({
    ...{ step, statePath: stateOf(model, step), isAfterDamage },
  });

  it('the ledger auditor lets steps rise, and fall back by one checkpoint after damage', () => {
    const rising = [sight('a', 0), sight('a', 3), sight('a', 6)];
    assert.deepEqual(auditLedger(rising, lineages), []);
    const damaged = [...rising, sight('a', 3, true), sight('b', 6)];
    assert.deepEqual(auditLedger(damaged, lineages), []);
  });

  const planted: readonly [what: string, sights: readonly LedgerSight[], found: RegExp][] = [
    ['a ledger that falls', [sight('a', 3), sight('a', 0)], /fell from step 3 to step 0/],
    [
      'a ledger that falls further than damage explains',
      [sight('a', 0), sight('a', 3), sight('a', 6), sight('a', 0, true)],
      /fell from step 6 to step 0/,
    ],
    [
      'a run that restarts over the ledger',
      [sight('a', 3), sight('fresh', 0, true)],
      /was at step 3, and was overwritten with step 0 of weights that do not come from it/,
    ],
    ['weights that nobody saved', [sight('c', 3)], /names tinker:\/\/c.* never saved/],
  ];
  for (const [what, sights, found] of planted) {
    it(`the ledger auditor finds ${what}`, () => {
      assert.match(auditLedger(sights, lineages).join('\n'), found);
    });
  }
});

describe('the watch for a standstill', () => {
  function watch() {
    const state = { steps: 0, now: 0 };
    const still = new StillWatch(
      60_000,
      () => state.steps,
      () => state.now,
    );
    const wait = (seconds: number) => {
      for (let i = 0; i < seconds; i++) {
        state.now += 1_000;
        still.look();
      }
    };
    return { state, still, wait };
  }

  it('the standstill watch reports 61 s without a step once and names the mishap before', () => {
    const { state, still, wait } = watch();
    wait(50);
    state.steps = 1;
    still.after('a lie');
    wait(60);
    assert.deepEqual([still.violations, still.isStill], [[], false]);
    wait(30);
    assert.deepEqual(still.violations, [
      'training stood still for 61 s while everything was healthy, after a lie',
    ]);
    assert(still.isStill);
    state.steps = 2;
    wait(1);
    assert(!still.isStill);
  });

  it('the standstill watch excludes outages made by the suite, but not the time after them', () => {
    const { still, wait } = watch();
    {
      using _outage = still.outage('a kill');
      wait(500);
    }
    wait(60);
    assert.deepEqual(still.violations, []);
    wait(1);
    assert.match(still.violations.join(), /61 s .*after a kill/);
    assert.equal(still.longestMs, 61_000);
  });

  it('the standstill watch counts the time before an outage', () => {
    const { state, still, wait } = watch();
    wait(55);
    state.now += 10_000; // without a check in between
    still.outage('a kill')[Symbol.dispose]();
    assert.equal(still.violations.length, 1);
  });
});

describe('the auditor of evaluations', () => {
  const group = (order: number, temperature: number, right: number, size: number) =>
    ({
      ticket: { order, pinnedVersion: 5, samplingParams: { temperature } },
      rollouts: Array.from({ length: size }, (_, i) => ({ right: i < right })),
    }) as unknown as RolloutGroup;
  // Two problems, two samples each and a greedy one: tickets 0 and 1, then 2 and 3.
  const delivered = [group(0, 1, 1, 2), group(1, 1, 2, 2), group(2, 0, 1, 1), group(3, 0, 0, 1)];
  const result = (sampled: number[], greedy: number[], lost = 0) =>
    ({
      ...{ version: 5, lost },
      answers: {
        sampled: { correct: sampled, total: [2, 2] },
        greedy: { correct: greedy, total: [1, 1] },
      },
    }) as unknown as EvalResult;
  const evidence = (over: Partial<EvalEvidence>): EvalEvidence => ({
    ...{ results: [result([1, 2], [1, 0])], delivered, problems: 2, samples: 2 },
    scores: ({ rollouts }) =>
      rollouts.map((rollout) => {
        return { isCorrect: (rollout as unknown as { right: boolean }).right } as Score;
      }),
    ...over,
  });

  it('the evaluation auditor accepts results that match the answers, also of a second attempt', () => {
    assert.deepEqual(auditEvals(evidence({})), []);
    const twice = [group(0, 1, 0, 2), ...delivered];
    assert.deepEqual(auditEvals(evidence({ delivered: twice })), []);
  });

  it('the evaluation auditor finds a rate that contradicts the answers, and one with too few answers', () => {
    const wrong = evidence({ results: [result([2, 2], [1, 0])] });
    assert.match(auditEvals(wrong).join('\n'), /version 5 has 2 right answers.*sampled, problem 0/);
    const greedy = evidence({ results: [result([1, 2], [1, 1])] });
    assert.match(auditEvals(greedy).join('\n'), /1 right answers.*greedy, problem 1/);
    assert.match(auditEvals(evidence({ samples: 3 })).join('\n'), /2 answers, not 3/);
  });
});

describe('the judgement of what actors sampled', () => {
  let judgement: Judgement;
  let tokenizer: Tokenizer;
  const task = countdownSpec();
  before(async () => {
    judgement = await Judgement.open({ task }, embeddedModelPath);
    tokenizer = await loadTokenizer(await readModelDirectory(embeddedModelPath));
  });

  async function groupOf(answers: readonly string[]): Promise<RolloutGroup> {
    const dataset = await openTask(task).load();
    const problemId = dataset.train[0]!.id;
    return {
      ticket: { ticketId: 'train-00000000', problemId, order: 0, split: 'train' },
      promptTokens: Int32Array.of(1, 2),
      rollouts: answers.map((answer) => {
        const tokens = tokenizer.encode(answer);
        const behaviorLogprobs = new Float32Array(tokens.length).fill(-1);
        return { tokens, behaviorLogprobs, versions: [[0, tokens.length]], stopReason: 'stop' };
      }),
    } as unknown as RolloutGroup;
  }

  it('the judgement finds a wrong reward and a group that no actor delivered', async () => {
    const group = await groupOf(['1', '2']);
    const scores = judgement.scores(group)!;
    const scored = { group, scores } as unknown as ScoredGroup;
    const delivered = new Set([keyOf(group)]);
    assert.deepEqual(judgement.complaints([scored], delivered), []);
    const generous = scores.map((score) => ({ ...score, reward: 1, exactReward: '1' }));
    assert.match(
      judgement.complaints([{ ...scored, scores: generous }], delivered).join('\n'),
      /train-00000000: rollout 0 was given the reward 1; the task gives 0/,
    );
    assert.match(judgement.complaints([scored], new Set()).join(), /no actor had delivered/);
  });

  it('the judgement identifies a group in a pass by its tokens and logprobs', async () => {
    const group = await groupOf(['12', '3']);
    const data = group.rollouts.map(({ tokens, behaviorLogprobs: logprobs }) =>
      datumOf('cispo', group.promptTokens, tokens, { logprobs, advantages: logprobs }),
    );
    assert.equal(keyOfData(data), keyOf(group));
    data[0]!.inputs.logprobs![2] = -2;
    assert.notEqual(keyOfData(data), keyOf(group));
  });
});

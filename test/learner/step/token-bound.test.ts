import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  prepareMinibatches,
  sendMinibatch,
  type MinibatchBackend,
} from '../../../learner/step/minibatch-pass.js';
import { reportStep } from '../../../learner/step/step-report.js';
import { lossAndGradient, LossName } from '../../../shared/rl/losses.js';
import { Normalization } from '../../../shared/rl/objective.js';
import { mayTrainOn } from '../../../shared/rl/staleness-bound.js';
import { rollout, rolloutGroup, runConfig, scoredGroup } from '../../support/messages.js';

const promptLength = rolloutGroup().promptTokens.length;

/** A backend under whose weights every token has another logprob than under those that sampled it. */
const backend = {
  forward: (data: Parameters<MinibatchBackend['forward']>[0]) =>
    Promise.resolve({
      logprobs: data.map(({ tokens }) => Float32Array.from(tokens, (_, t) => -1 - t / 16)),
      metrics: {},
    }),
} as unknown as MinibatchBackend;
const run: MinibatchBackend = { forward: backend.forward, forwardBackward: backend.forward };

/** Runs of tokens by rising versions. */
const runsOf = (newest: number) =>
  fc
    .array(fc.tuple(fc.integer({ min: 0, max: newest }), fc.integer({ min: 1, max: 3 })), {
      minLength: 1,
      maxLength: 4,
    })
    .map((runs) => {
      const sorted = runs.toSorted(([a], [b]) => a - b);
      return sorted.filter(([version], i) => version !== sorted[i - 1]?.[0]);
    });
const bounds = fc
  .record({
    version: fc.integer({ min: 0, max: 9 }),
    maxStepsOffPolicy: fc.integer({ min: 0, max: 4 }),
    crash: fc.option(fc.tuple(fc.integer({ min: 1, max: 9 }), fc.nat(8)), { nil: undefined }),
  })
  .map(({ version, maxStepsOffPolicy, crash }) => {
    const [from, to] = crash ?? [1, 1];
    return { version, maxStepsOffPolicy, rewinds: to < from ? [{ from, to }] : [] };
  });
const batches = bounds.chain((bound) =>
  fc.record({
    bound: fc.constant(bound),
    groups: fc.array(
      fc.tuple(runsOf(bound.version), runsOf(bound.version), runsOf(bound.version)),
      {
        minLength: 1,
        maxLength: 3,
      },
    ),
    normalization: fc.constantFrom(...Normalization.options),
    loss: fc.constantFrom(...LossName.options),
    mask: fc.boolean(),
  }),
);

describe('a step on groups whose tokens are of several versions', () => {
  it('no token beyond the bound is ever trained on, and every other one as it would be alone', async () => {
    let masked = 0;
    await fc.assert(
      fc.asyncProperty(batches, async ({ bound, groups, normalization, loss, mask }) => {
        const config = configOf({ loss, normalization, mask });
        const scored = groups.map((versions) => groupOf(versions));
        const [prepared] = await prepareMinibatches(
          { run, base: undefined },
          config,
          [scored],
          bound,
        );
        await sendMinibatch(run, config, prepared!);
        scored
          .flatMap(({ group }) => group.rollouts)
          .forEach(({ versions }, i) => {
            const { inputs, tokens } = prepared!.data[i]!;
            const current = Float32Array.from(tokens, (_, t) => -1 - t / 16);
            const { gradient } = lossAndGradient(loss, current, inputs, config.loss.config);
            const advantages = inputs.advantages ?? inputs.weights!;
            let t = promptLength - 1;
            for (const [version, count] of versions) {
              const end = t + count;
              const isFresh = mayTrainOn(version, bound);
              if (!isFresh) masked += count;
              for (; t < end; t++) {
                if (!isFresh) assert.deepEqual([advantages[t], gradient[t] === 0], [0, true]);
                else if (!mask) assert(advantages[t] !== 0 && Number.isFinite(advantages[t]));
              }
            }
          });
      }),
      { numRuns: 200 },
    );
    assert(masked > 100); // otherwise nothing was tested
  });

  it('the mean over tokens is one over the tokens that are trained on, and rewards are compared whole', async () => {
    const bound = { version: 5, maxStepsOffPolicy: 2, rewinds: [] };
    const first = groupOf([
      [
        [1, 2],
        [4, 1],
      ],
      [[5, 4]],
      [[0, 3]],
    ]);
    const scales = async (normalization: Normalization) => {
      const config = configOf({ loss: 'cispo', normalization, mask: false });
      const [prepared] = await prepareMinibatches(
        { run, base: undefined },
        config,
        [[first]],
        bound,
      );
      return prepared!.advantages.map((values) => values.map((value) => value * 3)); // rewards 1, 0, 0
    };
    // Advantages 2/3, -1/3, -1/3; five tokens in two answers are left.
    const wanted = (one: number, other: number) => [
      Float64Array.of(0, 0, one),
      new Float64Array(4).fill(other),
      new Float64Array(3),
    ];
    assertNear(await scales('none'), wanted(2, -1));
    assertNear(await scales('token'), wanted(2 / 5, -1 / 5));
    assertNear(await scales('sequence'), wanted(2 / 2, -1 / 4 / 2));
    assertNear(await scales('group'), wanted(2 / 5, -1 / 5));
  });

  it('a batch that would break the bound is not sent', async () => {
    const bound = { version: 5, maxStepsOffPolicy: 2, rewinds: [] };
    const config = configOf({ loss: 'cispo', normalization: 'none', mask: false });
    const groups = [
      groupOf([
        [
          [2, 1],
          [4, 1],
        ],
        [[5, 1]],
        [[5, 1]],
      ]),
    ];
    // As a mask that has forgotten a token would prepare it.
    const any = { ...bound, maxStepsOffPolicy: 3 };
    const [prepared] = await prepareMinibatches({ run, base: undefined }, config, [groups], any);
    let isSent = false;
    const watched = {
      forwardBackward: (...[data]: Parameters<MinibatchBackend['forwardBackward']>) => {
        isSent = true;
        return run.forwardBackward(data, 'cispo', {});
      },
    };
    assert.throws(
      () => sendMinibatch(watched, config, { ...prepared!, bound }),
      /a token of version 2 would be trained on by version 5, but --max-steps-off-policy is 2/,
    );
    assert(!isSent);
  });

  it('the figures of a mask and of weights describe the tokens that are trained on', async () => {
    const bound = { version: 3, maxStepsOffPolicy: 1, rewinds: [] };
    const config = {
      ...configOf({ loss: 'cispo', normalization: 'none', mask: true }),
      maxStepsOffPolicy: 1,
    };
    config.correction = { ...config.correction, weights: { kind: 'token', cap: 2 } };
    // Two tokens far below the policy in training, but beyond the bound, and two that it would sample as they were.
    const scored = groupOf(Array.from({ length: 3 }, () => [1, 3].map((by) => [by, 2])));
    for (const { behaviorLogprobs } of scored.group.rollouts) {
      behaviorLogprobs.forEach((_, t) => {
        behaviorLogprobs[t] = t < 2 ? -8 : -1 - (promptLength - 1 + t) / 16;
      });
    }
    const [prepared] = await prepareMinibatches(
      { run, base: undefined },
      config,
      [[scored]],
      bound,
    );
    const result = await sendMinibatch(run, config, prepared!);
    const group = { scored, seq: 1, sampledBy: [1, 3], arrivedAtVersion: 3 };
    const report = reportStep(config, 3, [{ group, staleness: 2, substep: 0 }], [result]);
    const keys = ['mask/low_share', 'mask/high_share', 'weights/mean', 'weights/capped_share'];
    assert.deepEqual(
      ['stale_tokens/count', ...keys].map((key) => report[key]),
      [6, 0, 0, 1, 0],
    );
    // The account adds the tokens beyond the bound to these.
    assert.deepEqual(
      result.corrected!.map(({ sides }) => [...sides]),
      Array.from({ length: 3 }, () => [0, 0]),
    );
  });

  it('the report of a step counts the masked tokens, and describes the others', async () => {
    const bound = { version: 5, maxStepsOffPolicy: 2, rewinds: [] };
    const config = configOf({ loss: 'cispo', normalization: 'none', mask: false });
    const scored = groupOf([
      [
        [1, 2],
        [4, 1],
      ],
      [[5, 4]],
      [[0, 3]],
    ]);
    const [prepared] = await prepareMinibatches(
      { run, base: undefined },
      config,
      [[scored]],
      bound,
    );
    const result = await sendMinibatch(run, config, prepared!);
    const group = { scored, seq: 1, sampledBy: [0, 1, 4, 5], arrivedAtVersion: 5 };
    const trained = [{ group, staleness: 5, substep: 0 }];
    const report = reportStep({ ...config, maxStepsOffPolicy: 2 }, 5, trained, [result]);
    assert.deepEqual(
      [
        'stale_tokens/count',
        'stale_tokens/share',
        'staleness/mean',
        'staleness/max',
        'trained/tokens',
      ].map((key) => report[key]),
      [5, 1 / 2, 1, 1, 5],
    );
    assert.equal(report['staleness/token_weighted/mean'], 1 / 5);
    assert.deepEqual(
      Object.keys(report).filter((key) => key.startsWith('kl_sample_train_v1/')),
      ['kl_sample_train_v1/staleness_0', 'kl_sample_train_v1/staleness_1'],
    );
  });
});

function configOf({
  loss,
  normalization,
  mask,
}: {
  loss: LossName;
  normalization: Normalization;
  mask: boolean;
}) {
  const settings: Partial<Record<LossName, Record<string, number>>> = {
    ppo: { clip_low_threshold: 0.8, clip_high_threshold: 1.2 },
    cispo: { clip_low_threshold: 0, clip_high_threshold: 4 },
    dro: { beta: 0.1 },
  };
  return runConfig({
    loss: { name: loss, config: settings[loss] ?? {} },
    normalization,
    windowPolicy: 'tokens',
    correction: {
      weights: { kind: 'none' },
      mask: mask ? { kind: 'icepop', low: 0.5, high: 2 } : { kind: 'none' },
    },
  });
}

/** A group of three answers with rewards 1, 0 and 0. */
function groupOf(versions: readonly [number, number][][]) {
  const rollouts = versions.map((runs) =>
    rollout(
      runs.reduce((sum, [, count]) => sum + count, 0),
      { versions: runs },
    ),
  );
  const scored = scoredGroup({ group: rolloutGroup({ rollouts }) });
  scored.scores.forEach((score, i) => {
    Object.assign(score, { reward: i === 0 ? 1 : 0, exactReward: i === 0 ? '1' : '0' });
  });
  return scored;
}

function assertNear(actual: readonly Float64Array[], wanted: readonly Float64Array[]): void {
  actual.forEach((values, i) => {
    assert.equal(values.length, wanted[i]!.length);
    values.forEach((value, t) => {
      assert(
        Math.abs(value - wanted[i]![t]!) < 1e-9,
        `${i}.${t} is ${value}, not ${wanted[i]![t]}`,
      );
    });
  });
}

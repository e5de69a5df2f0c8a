import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Admission } from '../../../learner/groups/admission.js';
import type { ArrivedGroup } from '../../../learner/groups/check-scored-group.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import { LearningRateSchedule } from '../../../learner/step/learning-rate-schedule.js';
import { CollectedStep } from '../../../learner/step/collected-step.js';
import type { Datum } from '../../../shared/rl/datum.js';
import { TaskScope } from '../../../shared/base/task-scope.js';
import { runConfig, scoredGroup } from '../../support/messages.js';

const config = runConfig({ groupsPerBatch: 4, numSubsteps: 2, numMinibatches: 2 });
const progress = { progressBefore: 0, stepBefore: 0, maxSteps: 4, maxSeconds: Infinity };

describe('an open step of two optimizer steps on two minibatches each', () => {
  /** Sends this many minibatches of one group each, as the step of this number. */
  const send = async (scope: TaskScope, minibatches: number, over: object = {}, number = 1) => {
    const settings = { ...config, ...over };
    const calls: string[] = [];
    const sent: number[][] = []; // the first advantage of each rollout of a pass
    const backend = {
      forwardBackward: (data: readonly Datum[]) => {
        calls.push('pass');
        sent.push(data.map(({ inputs }) => inputs.advantages!.find((value) => value !== 0) ?? 0));
        const logprobs = [new Float32Array(5), new Float32Array(5)]; // one for each answer of a group
        return Promise.resolve({ logprobs, metrics: {} });
      },
      optimStep: () => {
        calls.push('optimizer step');
        return Promise.resolve({});
      },
    };
    const admission = new Admission<ArrivedGroup>(
      { ...config, maxSteps: 4 },
      { step: 0, version: 0 },
    );
    const step = new CollectedStep(
      {
        config: settings,
        scope,
        run: backend as never,
        base: undefined,
        admission,
        changes: { notify: () => undefined },
        idle: new IdleClock(() => 0),
        learningRates: new LearningRateSchedule(settings, progress, () => 0),
      },
      number,
    );
    while (admission.offer() !== undefined) admission.issue();
    for (let order = 0; order < minibatches; order++) {
      const { scores, ...scored } = scoredGroup();
      const rewarded = scores.map((score, i) => ({ ...score, reward: i === 0 ? 1 : 0 }));
      const group = {
        scored: { ...scored, scores: rewarded },
        seq: order,
        sampledBy: [0],
        arrivedAtVersion: 0,
      };
      admission.arrive(order, group, group.sampledBy);
      await step.take(admission.cut()!);
    }
    return { step, calls, sent };
  };
  it('an optimizer step follows every second pass', async () => {
    await using scope = new TaskScope();
    const { step, calls } = await send(scope, 4);
    const substep = ['pass', 'pass', 'optimizer step'];
    assert.deepEqual(calls, [...substep, ...substep]);
    assert.deepEqual(
      step.sentGroups.map(({ substep }) => substep),
      [0, 0, 1, 1],
    );
  });

  it('a step cut short keeps the groups and results of the optimizer steps that it has made', async () => {
    await using scope = new TaskScope();
    const { step } = await send(scope, 3);
    assert.equal(step.cutShort(), 1);
    assert.deepEqual(
      [step.sentGroups.length, step.results.length, step.optimStepMetrics.length],
      [2, 2, 1],
    );
  });

  it('maxrl gives way to centred advantages in the first step that starts at the progress that is set', async () => {
    await using scope = new TaskScope();
    const advantagesOf = async (over: object, number: number) =>
      (await send(scope, 1, over, number)).sent;
    const [maxrl, centred] = [
      await advantagesOf({ advantage: 'maxrl' }, 3),
      await advantagesOf({}, 3),
    ];
    assert.notDeepEqual(maxrl, centred);
    const changing = { advantage: 'maxrl', maxrlUntil: 0.5 }; // of four steps
    assert.deepEqual(
      await Promise.all([1, 2, 3, 4].map((number) => advantagesOf(changing, number))),
      [maxrl, maxrl, centred, centred],
    );
  });
});

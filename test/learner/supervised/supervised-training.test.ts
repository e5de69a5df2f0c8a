import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { BatchPlan } from '../../../learner/supervised/batch-plan.js';
import {
  SupervisedTraining,
  type SupervisedOptions,
} from '../../../learner/supervised/supervised-training.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import { Changes } from '../../../shared/base/changes.js';
import { TaskScope } from '../../../shared/base/task-scope.js';
import { silent } from '../../support/log.js';
import { runConfig } from '../../support/messages.js';
import { never } from '../../support/waiting.js';

const example = { tokens: Int32Array.of(1, 2, 3), isTrained: Uint8Array.of(0, 1, 1) };

/** Trains one epoch of eight examples, four a step, on a backend that gives each token the logprob -1. */
function training(start: SupervisedOptions['start'], scope: TaskScope): SupervisedTraining {
  const pass = (data: readonly unknown[]) =>
    Promise.resolve({ logprobs: data.map(() => Float32Array.of(-1, -1)), metrics: {} });
  const options = {
    config: runConfig({ numMinibatches: 1 }),
    run: { forward: pass, forwardBackward: pass, optimStep: () => Promise.resolve({}) },
    account: { learn: () => undefined, totals: {} },
    meter: { totals: {} },
    plan: new BatchPlan({
      examples: { size: 8, at: () => example },
      batch: { by: 'examples', size: 4 },
      epochs: 1,
      seed: 0,
    }),
    heldOut: [example],
    start,
    maxSteps: Infinity,
    isCheckpointed: (step: number) => step % 10 === 0,
    evaluateEverySteps: 0,
    measureEverySteps: 0,
    publisher: { publish: () => Promise.resolve(), retire: () => Promise.resolve() },
    checkpointer: {
      save: () => ({ write: () => Promise.resolve(), discard: () => Promise.resolve() }),
      writtenStep: start.step,
    },
    learningRates: { settingsFor: () => runConfig().adam, progress: () => 1 },
    changes: new Changes(),
    scope,
    onStep: () => Promise.resolve(),
    versionsInUse: () => [],
    idle: new IdleClock(() => 0),
    surroundings: () => ({}),
    log: silent,
  };
  return new SupervisedTraining(options as unknown as SupervisedOptions);
}

describe('training on examples', () => {
  it('the result of a run has its examples, and how well the last ones were known', async () => {
    await using scope = new TaskScope();
    const all = training({ step: 0, version: 0, place: 0, leftOut: 0 }, scope);
    await all.run(never);
    assert.deepEqual(all.result, { examples: 8, epochs: 1, nll: 1, heldOutNll: 1 });
  });

  it('a resumed run without examples left has the result of its weights, measured on those held out', async () => {
    await using scope = new TaskScope();
    const finished = training({ step: 2, version: 3, place: 8, leftOut: 1 }, scope);
    await finished.run(never);
    assert.deepEqual(finished.result, { examples: 7, leftOut: 1, epochs: 1, heldOutNll: 1 });
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CheckpointTrial, type Candidate } from '../../../learner/checkpoints/checkpoint-trial.js';

/** A trial, and the record of what it did with each state. */
function observed() {
  const done: string[] = [];
  const candidate = (step: number): Candidate => ({
    step,
    state: {
      write: (consumed) => Promise.resolve(void done.push(`write ${consumed.step}`)),
      discard: () => Promise.resolve(void done.push(`discard ${step}`)),
    },
    consumed: () => ({
      step,
      version: step,
      progress: 0,
      rewinds: [],
      messages: [],
      table: { nextOrder: 0, consumedBelow: 0, consumedAbove: [], counts },
    }),
  });
  return { trial: new CheckpointTrial(), done, candidate };
}
const counts = {
  issued: 0,
  trained: 0,
  skippedZeroVariance: 0,
  stale: 0,
  dead: 0,
  outstanding: 0,
};

describe('a saved state on trial', () => {
  it('a saved state becomes the checkpoint once the next step was healthy, saved or not', async () => {
    const { trial, done, candidate } = observed();
    await trial.settle(true, candidate(1));
    assert.deepEqual(done, []);
    await trial.settle(true, undefined);
    assert.deepEqual(done, ['write 1']);
    await trial.settle(true, candidate(3));
    await trial.settle(true, candidate(4));
    assert.deepEqual(done, ['write 1', 'write 3']);
  });

  it('a saved state is deleted if the next step was unhealthy, and so is the state of that step', async () => {
    const { trial, done, candidate } = observed();
    await trial.settle(true, candidate(1));
    await trial.settle(false, candidate(2));
    assert(!trial.isHealthy);
    assert.deepEqual(done, ['discard 1', 'discard 2']);
    await trial.settle(true, candidate(3));
    assert(trial.isHealthy);
    assert.deepEqual(done.slice(2), []);
  });

  it('a saved state becomes the checkpoint, unjudged, if the run ends with its step', async () => {
    const { trial, done, candidate } = observed();
    await trial.settle(true, candidate(5));
    await trial.end(candidate(5));
    assert.deepEqual(done, ['write 5']);
  });

  it('a saved state is deleted if the run ends with a later step, whose state becomes the checkpoint', async () => {
    const { trial, done, candidate } = observed();
    await trial.settle(true, candidate(5));
    await trial.end(candidate(6));
    assert.deepEqual(done, ['write 6', 'discard 5']);
  });

  it('a saved state is deleted if the run is given up', async () => {
    const { trial, done, candidate } = observed();
    await trial.settle(true, candidate(5));
    await trial.end();
    assert.deepEqual(done, ['discard 5']);
  });
});

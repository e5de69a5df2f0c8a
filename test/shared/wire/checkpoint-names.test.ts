import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  isSavedByLearner,
  policyFilesName,
  policyName,
  stateName,
  stepOfState,
} from '../../../shared/wire/checkpoint-names.js';

describe('the names of checkpoints', () => {
  it('the name of a training state has its step', () => {
    assert.equal(stateName(120), 'state-000120');
    for (const step of [0, 120, 1_234_567]) assert.equal(stepOfState(stateName(step)), step);
  });

  it('no step is read from the name of another checkpoint', () => {
    const names = [policyName(120), policyFilesName(120), 'state-120', 'state-000120.1', 'by-hand'];
    for (const name of names) assert.equal(stepOfState(name), undefined, name);
  });

  it('checkpoints of other programs are not taken for those of a learner', () => {
    assert.equal(policyFilesName(7), 'policy-000007-files');
    for (const nameOf of [stateName, policyName, policyFilesName]) {
      assert(isSavedByLearner(nameOf(7)));
      assert(isSavedByLearner(nameOf(1_234_567)));
    }
    for (const name of ['by-hand', 'state-7', 'my-state-000007', 'step-000007']) {
      assert(!isSavedByLearner(name), name);
    }
  });
});

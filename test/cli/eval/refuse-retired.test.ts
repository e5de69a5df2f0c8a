import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { areWeightsOfTheRun, refuseRetired } from '../../../cli/eval/refuse-retired.js';
import { UserError } from '../../../shared/base/errors.js';
import { evalResult } from '../../support/messages.js';

const asked = { run: 'mine', version: 7 };
const gone = () => Promise.resolve(false);
const kept = () => Promise.resolve(true);
const whole = evalResult({ version: 7, lost: 0 });
const partial = evalResult({ version: 7, lost: 3 });

const isRefusal = (caught: unknown) =>
  caught instanceof UserError &&
  /run mine has deleted version 7 .*--version best/.test(caught.message);

describe('a version that its run deletes while it is measured', () => {
  it('the answers before the deletion are no score, whether some or all others are missing', async () => {
    await assert.rejects(refuseRetired(Promise.resolve(partial), asked, gone), isRefusal);
    const allDied = new UserError('all of its greedy tickets died');
    await assert.rejects(refuseRetired(Promise.reject(allDied), asked, gone), (caught) => {
      assert(isRefusal(caught));
      assert.equal((caught as Error).cause, allDied);
      return true;
    });
  });

  it('a result is reported if no answer is missing, or another cause has kept it from coming', async () => {
    assert.equal(await refuseRetired(Promise.resolve(whole), asked, gone), whole);
    assert.equal(await refuseRetired(Promise.resolve(partial), asked, kept), partial);
    const other = new Error('an actor ended');
    await assert.rejects(refuseRetired(Promise.reject(other), asked, kept), other);
  });

  it('a partial score stays as it is if the store of the run does not answer', async () => {
    const unknown = () => Promise.reject(new Error('no server'));
    assert.equal(await refuseRetired(Promise.resolve(partial), asked, unknown), partial);
  });

  it('only what a backend of the user samples with is deleted by the run; other weights are copies', () => {
    const found = { backendUrl: 'http://tuft:8000', sampler: 'tinker' } as const;
    const version = { samplerPath: 'tinker://run/sampler_weights/7' };
    assert(areWeightsOfTheRun(found, version));
    assert(!areWeightsOfTheRun({ ...found, sampler: 'onnx' }, version));
    assert(!areWeightsOfTheRun({ ...found, backendUrl: undefined }, version));
    assert(!areWeightsOfTheRun(found, { samplerPath: undefined })); // restored from a state
  });
});

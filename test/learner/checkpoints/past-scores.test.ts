import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { pastScores, type EvalEvent, type StepEvent } from '../../../learner/report/history.js';
import { evalResult } from '../../support/messages.js';

const step = (step: number, version: number): StepEvent => {
  return { v: 1, at: 0, kind: 'step', step, version, metrics: {} };
};
const evaluated = (version: number, sampled: number): EvalEvent => {
  return { v: 1, at: 0, kind: 'eval', result: evalResult({ version, sampled }) };
};

describe('the scores of earlier sessions', () => {
  it('past scores belong to the steps whose versions were evaluated, including step 0', () => {
    const steps = [step(1, 1), step(2, 2)];
    const evals = [evaluated(0, 0.1), evaluated(2, 0.4)];
    assert.deepEqual(pastScores({ steps, evals, restoredVersions: new Set() }), [
      [0, 0.1, 2],
      [2, 0.4, 2],
    ]);
  });

  it('past scores include those of weights that a resume published again', () => {
    const steps = [step(1, 1), step(2, 2), step(3, 4)];
    const evals = [evaluated(2, 0.3), evaluated(3, 0.4), evaluated(5, 0.5)];
    assert.deepEqual(pastScores({ steps, evals, restoredVersions: new Set([3, 5]) }), [
      [2, 0.3, 2],
      [2, 0.4, 2],
      [3, 0.5, 2],
    ]);
  });

  it('past scores leave out versions that a crash rolled back', () => {
    const steps = [step(1, 1), step(2, 5), step(3, 6)]; // steps 2 and 3 were also made before the crash, as versions 2 and 3
    const evals = [evaluated(2, 0.9), evaluated(3, 0.9), evaluated(6, 0.4)];
    const restoredVersions = new Set([4]);
    assert.deepEqual(pastScores({ steps, evals, restoredVersions }), [[3, 0.4, 2]]);
  });
});

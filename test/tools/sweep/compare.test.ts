import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compare, verdictOn } from '../../../tools/sweep/compare.js';
import { answeredByAll, measure } from '../../../tools/sweep/measures.js';
import { cellsOf } from '../../../tools/sweep/plan.js';
import type { RunResult } from '../../../tools/sweep/results.js';
import { Measure, type Choice } from '../../../tools/sweep/sweep-file.js';
import { createRandom } from '../../../shared/base/random.js';
import { assertClose } from '../../shared/rl/close.js';
import { evalResult } from '../../support/messages.js';
import { runResult, sweepOf } from './values.js';

const bootstrap = { resamples: 500, confidence: 0.95 } as const;
const byProblems = () => ({ ...bootstrap, random: createRandom('m') });
const measureOf = (json: object) => Measure.parse(json);

describe('a measure of runs', () => {
  const runs = [runResult({ lag: '0' }, 0, [0, 1, 2, 2]), runResult({ lag: '0' }, 1, [2, 1, 2, 2])];

  it('a measure is the share of right answers to all problems, with its interval', () => {
    const solved = measureOf({ name: 'solved', from: 'eval', key: 'sampled' });
    const { mean, low, high, kind, runs: count } = measure(solved, runs, byProblems())!;
    assert.deepEqual([mean, kind, count], [12 / 16, 'interval', 2]);
    assert(low < mean && mean < high && low >= 0.5 && high <= 1);
  });

  it('a measure may be pass@k of the same answers', () => {
    const pass = measureOf({ name: 'pass', from: 'eval', key: 'pass@2' });
    assert.equal(measure(pass, runs, byProblems())!.mean, 7 / 8);
  });

  it('a measure of more answers than the runs have does not exist', () => {
    const pass = measureOf({ name: 'pass', from: 'eval', key: 'pass@16' });
    assert.equal(measure(pass, runs, byProblems()), undefined);
  });

  it('a measure may be of the start or of a further evaluation, where a run has it', () => {
    const at = (place: string) =>
      measure(
        measureOf({ name: 'm', from: 'eval', key: 'greedy', at: place }),
        cooled,
        byProblems(),
      );
    const answers = {
      sampled: { correct: [0, 0, 0, 0], total: [2, 2, 2, 2] },
      greedy: { correct: [1, 1, 1, 0], total: [1, 1, 1, 1] },
    };
    const cooled = [
      runResult({ lag: '0' }, 0, [0, 0, 0, 0], { furtherEvals: { cool: evalResult({ answers }) } }),
      runResult({ lag: '0' }, 1, [0, 0, 0, 0]),
    ];
    const { mean, runs: count } = at('cool')!;
    assert.deepEqual([mean, count], [3 / 4, 1]);
    assert.equal(at('start')!.runs, 2);
    assert.equal(at('hot'), undefined);
  });

  it('a measure of the end does not exist for a run whose last version was not evaluated', () => {
    const collapsed = runResult({ lag: '0' }, 1, [2, 2, 2, 2], {
      reason: 'diverged',
      summary: { version: 9 },
    });
    const solved = (at?: string) =>
      measure(
        measureOf({ name: 'm', from: 'eval', key: 'sampled', ...(at !== undefined && { at }) }),
        [runs[0]!, collapsed],
        byProblems(),
      )!;
    assert.deepEqual([solved().mean, solved().runs], [5 / 8, 1]);
    assert.equal(solved('start').runs, 2);
  });

  it('a measure may be taken from the steps: their end, mean, extremes, variation or noise', () => {
    const entropy = (take: string) =>
      measure(measureOf({ name: 'e', from: 'steps', key: 'entropy', take }), runs, byProblems())!;
    const mean = (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4;
    const deviation = Math.sqrt((1 + 1 / 4 + 1 / 9 + 1 / 16) / 4 - mean ** 2);
    const jump = Math.sqrt((1 / 4 + 1 / 36 + 1 / 144) / 3 / 2);
    assertClose(
      ['end', 'mean', 'min', 'max', 'variation', 'noise'].map((take) => entropy(take).mean),
      [1 / 4, mean, 1 / 4, 1, deviation / mean, jump / mean],
    );
    assert.equal(entropy('end').kind, 'range');
  });

  it('a measure does not exist if no step has it or there is no run', () => {
    const unknown = measureOf({ name: 'u', from: 'steps', key: 'unknown' });
    assert.equal(measure(unknown, runs, byProblems()), undefined);
    const solved = measureOf({ name: 'solved', from: 'eval', key: 'sampled' });
    assert.equal(measure(solved, [], byProblems()), undefined);
  });

  it('a measure leaves out problems that one of the runs did not answer', () => {
    assert.deepEqual(answeredByAll([[[1, NaN, 0]], [[0.5, 1, 1]]]), [[[1, 0]], [[0.5, 1]]]);
  });
});

describe('a comparison with lag 0', () => {
  const sweep = sweepOf();
  const [spec] = sweep.comparisons;
  const solved = measureOf({ name: 'solved', from: 'eval', key: 'sampled' });
  const compared = (results: readonly RunResult[], measured = solved) => {
    const resultsOf = (choice: Choice) =>
      results.filter((run) => JSON.stringify(run.choice) === JSON.stringify(choice));
    const options = { ...bootstrap, seed: 's' };
    if (measured.from !== 'eval') throw new Error('unreachable');
    return compare(spec!, measured, cellsOf(sweep), resultsOf, options);
  };
  const sync = { lag: '0', correction: 'cispo' };
  const late = { lag: '4', correction: 'cispo' };
  const none = { lag: '4', correction: 'none' };

  it('a comparison pairs runs of a seed, problem by problem', () => {
    const results = [
      runResult(sync, 0, [2, 1, 0, 0]),
      runResult(sync, 1, [1, 1, 1, 1]),
      runResult(late, 0, [2, 1, 0, 0]),
      runResult(late, 1, [1, 1, 1, 1]),
      runResult(none, 1, [0, 0, 0, 0]),
      runResult(none, 2, [2, 2, 2, 2]), // without a partner
    ];
    const [same, worse, ...more] = compared(results);
    assert.deepEqual(more, []);
    assert.deepEqual([same!.choice, same!.pairs, same!.verdict], [late, 2, 'no worse']);
    assert.deepEqual(same!.byProblems, { mean: 0, low: 0, high: 0 });
    assert.deepEqual([worse!.choice, worse!.baseline, worse!.pairs], [none, sync, 1]);
    assert.deepEqual([worse!.byProblems.mean, worse!.verdict], [-0.5, 'worse']);
  });

  it('a comparison is judged by the interval over seeds where there are several', () => {
    const results = [0, 1].flatMap((seed) => [
      runResult(sync, seed, [0, 0, 0, 0]),
      runResult(late, seed, seed === 0 ? [2, 2, 2, 2] : [1, 1, 1, 1]),
    ]);
    const [late2] = compared(results);
    assert.deepEqual(late2!.byProblems, { mean: 0.75, low: 0.75, high: 0.75 });
    assert(late2!.bySeeds!.low < 0); // two seeds that differ so much do not decide it
    assert.equal(late2!.verdict, 'not decided');
    assert.equal(compared(results.slice(0, 2))[0]!.verdict, 'better');
  });

  it('a comparison is left out until both cells have been run', () => {
    assert.deepEqual(compared([runResult(late, 0, [1, 1, 1, 1])]), []);
  });

  it('a comparison is left out if its measure needs more answers than the runs have', () => {
    const pass = measureOf({ name: 'pass', from: 'eval', key: 'pass@16' });
    const both = [sync, late].map((choice) => runResult(choice, 0, [1, 1, 1, 1]));
    assert.deepEqual(compared(both, pass), []);
  });

  it('a comparison is judged by the whole interval', () => {
    const verdicts = [
      [-0.005, 0.02, 0.01],
      [-0.03, 0.02, 0.01],
      [-0.05, -0.02, 0.01],
      [0.02, 0.05, 0.01],
      [0.001, 0.05, undefined],
      [-0.2, -0.1, undefined],
      [-0.1, 0.1, undefined],
    ] as const;
    assert.deepEqual(
      verdicts.map(([low, high, margin]) => verdictOn({ mean: 0, low, high }, margin)),
      ['no worse', 'not decided', 'worse', 'better', 'better', 'worse', 'not decided'],
    );
  });
});

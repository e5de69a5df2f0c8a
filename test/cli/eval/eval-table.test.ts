import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { evalTable } from '../../../cli/eval/eval.js';
import { evalText } from '../../../cli/up/progress.js';
import { evalResult } from '../../support/messages.js';

describe('the table of an evaluation', () => {
  const rates = {
    problems: 8,
    sampled: 0.125,
    greedy: 1,
    passAt: { '1': 0.125, '4': 0.5, '2': 0.25 },
  };

  it('the table of an evaluation has a column for each number of tries', () => {
    assert.equal(
      evalTable(evalResult({ ...rates, samples: 4, byDifficulty: [] })),
      [
        '     problems  sampled   greedy  pass@2  pass@4',
        'all         8   12.5 %  100.0 %  25.0 %  50.0 %',
        'sampled: 4 answers to a problem at temperature 1',
      ].join('\n'),
    );
  });

  it('the table of an evaluation has a row for each of several difficulties and reports missing answers', () => {
    const byDifficulty = ['3 numbers', '4 numbers'].map((difficulty) => ({ difficulty, ...rates }));
    const table = evalTable(evalResult({ ...rates, byDifficulty, lost: 3 }));
    assert.match(table, /^3 numbers +8 +12\.5 %[^]*^4 numbers/m);
    assert.match(table, /without 3 tickets that died$/);
  });
});

describe('the line of an evaluation during a run', () => {
  it('the line of an evaluation gives its version and the progress of training since', () => {
    const result = { problems: 256, sampled: 0.434, greedy: 0.512, samples: 4, passAt: { 4: 0.7 } };
    assert.equal(
      evalText(evalResult({ ...result, version: 12, lag: 3 })),
      'version 12: 43.4 % of 256 held-out problems solved, 51.2 % greedily, 70.0 % in 4 tries ' +
        '(training is at version 15)',
    );
    assert.match(evalText(evalResult({ ...result, lag: 0 })), /in 4 tries$/);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { solveRates } from '../../../../shared/run/evaluation/solve-rates.js';
import { EvalResult } from '../../../../shared/wire/eval-result.js';
import { evalResult } from '../../../support/messages.js';
import { assertClose } from '../../rl/close.js';

const problems = ['10 numbers', '3 numbers', '3 numbers'].map((difficulty, i) => ({
  id: `p-${i}`,
  difficulty,
}));

describe('the rates of three problems with four answers each', () => {
  const sampled = { correct: [0, 2, 4], total: [4, 4, 4] };
  const greedy = { correct: [0, 0, 1], total: [1, 1, 1] };

  it('the solve rates are means over the problems', () => {
    const { sampled: rate, greedy: greedily, passAt } = solveRates(problems, { sampled, greedy })!;
    assertClose([rate, greedily], [(0 + 0.5 + 1) / 3, 1 / 3]);
    // Of the 6 pairs of the second problem's answers, one is all wrong.
    assertClose([passAt['1']!, passAt['2']!, passAt['4']!], [0.5, (0 + 5 / 6 + 1) / 3, 2 / 3]);
  });

  it('the solve rates are reported by difficulty, in numeric order', () => {
    const { byDifficulty } = solveRates(problems, { sampled, greedy })!;
    assert.deepEqual(
      byDifficulty.map(({ difficulty, problems, sampled, greedy }) => [
        ...[difficulty, problems, sampled, greedy],
      ]),
      [
        ['3 numbers', 2, 0.75, 0.5],
        ['10 numbers', 1, 0, 0],
      ],
    );
  });

  it('the solve rates omit unanswered problems and difficulties without answers', () => {
    const lost = { correct: [0, 2, 4], total: [0, 4, 4] };
    const { sampled: rate, byDifficulty } = solveRates(problems, { sampled: lost, greedy })!;
    assert.equal(rate, 0.75);
    assert.deepEqual(
      byDifficulty.map(({ difficulty }) => difficulty),
      ['3 numbers'],
    );
  });

  it('a problem that lacks answers counts only for as many tries as it has answers', () => {
    const lacking = { correct: [0, 2, 2], total: [4, 4, 2] };
    const { passAt } = solveRates(problems, { sampled: lacking, greedy })!;
    assertClose([passAt['1']!, passAt['4']!], [(0 + 0.5 + 1) / 3, (0 + 1) / 2]);
  });

  it('the solve rates cannot be computed without any answer of one kind', () => {
    const none = { correct: [0, 0, 0], total: [0, 0, 0] };
    assert.equal(solveRates(problems, { sampled, greedy: none }), undefined);
    assert.equal(solveRates(problems, { sampled: none, greedy }), undefined);
  });
});

describe('the result of an evaluation', () => {
  it('a result cannot have more correct answers than answers, nor another number of problems', () => {
    const { greedy } = evalResult().answers;
    const withSampled = (sampled: typeof greedy) => evalResult({ answers: { sampled, greedy } });
    assert(EvalResult.safeParse(evalResult()).success);
    const tooMany = EvalResult.safeParse(withSampled({ correct: [1, 3], total: [2, 2] }));
    assert.match(String(tooMany.error), /3 are correct/);
    const tooFew = EvalResult.safeParse(withSampled({ correct: [1, 1], total: [2] }));
    assert.match(String(tooFew.error), /expected one for each of 2/);
  });
});

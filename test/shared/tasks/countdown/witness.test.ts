import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { generateProblems } from '../../../../shared/tasks/countdown/generator.js';
import { scoreAnswer } from '../../../../shared/tasks/countdown/score.js';
import { forms, zeroOrOne } from '../../../support/countdown-task.js';

const reward = { ...zeroOrOne, formatScore: 0.1, shaping: 'constant' } as const;

/** Some problems with their witnesses: any seed, 2 to 6 numbers, small ranges and large. */
const solved = fc
  .record({
    seed: fc.nat(),
    count: fc.integer({ min: 2, max: 6 }),
    maxNumber: fc.integer({ min: 20, max: 1_000 }),
    reach: fc.integer({ min: 1, max: 100 }),
  })
  .map(({ seed, count, maxNumber, reach }) =>
    generateProblems({
      kind: 'generator',
      seed,
      numbers: [count],
      maxNumber,
      maxTarget: maxNumber * reach,
      trainSize: 8,
      testSize: 2,
    }),
  );

describe('the witness of every generated problem', () => {
  it('the witness of every generated problem scores 1', () => {
    fc.assert(
      fc.property(solved, ({ test, train }) => {
        for (const { problem, witness } of [...test, ...train]) {
          assert.equal(
            scoreAnswer(forms.compact, problem, witness, reward).exactReward,
            '1',
            witness,
          );
          const block = `<think>…</think> <answer> ${witness} = ${problem.target} </answer>`;
          assert.equal(scoreAnswer(forms.think, problem, block, reward).exactReward, '1', witness);
        }
      }),
    );
  });

  it('a witness no longer scores 1 if any of its numbers is changed, missing or repeated', () => {
    fc.assert(
      fc.property(solved, fc.nat(), fc.integer({ min: 1, max: 99 }), ({ train }, at, by) => {
        for (const { problem, witness } of train) {
          const found = [...witness.matchAll(/\d+/g)];
          const { 0: number, index } = found[at % found.length]!;
          const replaced = (text: string) =>
            witness.slice(0, index) + text + witness.slice(index + number.length);
          for (const mutated of [
            replaced(String(Number(number) + by)),
            replaced(`${by}${number}`),
            replaced(`(${number}+${by}-${by})`),
            replaced(`(${number}*1)`),
            replaced('(1-1)/1'),
          ]) {
            const score = scoreAnswer(forms.compact, problem, mutated, reward);
            assert.equal(score.exactReward, '1/10', mutated);
            assert.equal(score.reason, 'wrong_numbers', mutated);
          }
        }
      }),
    );
  });
});

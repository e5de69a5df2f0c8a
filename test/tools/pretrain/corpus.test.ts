import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import {
  areHeldOut,
  embeddedDataset,
  pretrainedProblems,
} from '../../../shared/tasks/countdown/generator.js';
import { problemOf } from '../../../shared/tasks/countdown/problem.js';
import { scoreAnswer } from '../../../shared/tasks/countdown/score.js';
import { embeddedModelPath, readModelDirectory } from '../../../shared/model/model-directory.js';
import { loadTokenizer, type Tokenizer } from '../../../shared/model/tokenizer.js';
import { batches, solvedProblems } from '../../../tools/pretrain/corpus.js';
import { forms, zeroOrOne } from '../../support/countdown-task.js';

describe('the pretraining corpus of the embedded model', () => {
  /** The first texts of the corpus, taken apart again. */
  let tokenizer: Tokenizer;
  let texts: { problem: ReturnType<typeof problemOf>; answer: string }[];
  before(async () => {
    tokenizer = await loadTokenizer(await readModelDirectory(embeddedModelPath));
    const corpus = solvedProblems(tokenizer, pretrainedProblems, '3');
    texts = Array.from({ length: 3_000 }, () => {
      const { tokens, targets, weights } = corpus.next().value;
      const start = weights.indexOf(1); // the first answer token is the target of this one
      const prompt = tokenizer.decode(tokens.subarray(0, start + 1));
      const [, numbers, target] = /^([\d ,]+)\D+(\d+)\D*$/.exec(prompt) ?? assert.fail(prompt);
      const problem = problemOf(numbers!.split(/\D+/).filter(Boolean).map(Number), Number(target));
      assert.equal(targets.at(-1), tokenizer.eosTokenIds[0]);
      assert(weights.subarray(start).every((weight) => weight === 1));
      return { problem, answer: tokenizer.decode(targets.subarray(start, -1)) };
    });
  });

  it('the batches of a resumed training are those that an uninterrupted one would see next', () => {
    const firstTokens = (from: number, count: number) => {
      const seen = batches(tokenizer, pretrainedProblems, { size: 4, seed: 1, from });
      return Array.from({ length: count }, () =>
        seen.next().value.map(({ tokens }) => [...tokens]),
      );
    };
    assert.deepEqual(firstTokens(21, 20), firstTokens(0, 41).slice(21));
  });

  it('the corpus answers every problem right', () => {
    for (const { problem, answer } of texts) {
      assert(scoreAnswer(forms.compact, problem, answer, zeroOrOne).isCorrect, answer);
    }
  });

  it('the corpus has problems of 3 and of 4 numbers in similar shares', () => {
    const three = texts.filter(({ problem }) => problem.numbers.length === 3).length;
    assert(three > 1_400 && three < 1_900, String(three));
  });

  it('the corpus never contains a combination of numbers that a dataset holds out', () => {
    for (const { problem } of texts) assert(!areHeldOut(problem.numbers), problem.id);
  });

  it('the corpus never contains a target that the default run trains on', () => {
    for (const { problem } of texts) assert(problem.target < embeddedDataset.minTarget);
  });
});

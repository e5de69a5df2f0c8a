import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { embeddedDataset, generateProblems } from '../../../shared/tasks/countdown/generator.js';
import { problemKey, problemOf } from '../../../shared/tasks/countdown/problem.js';
import { scoreAnswer, zeroOrOne } from '../../../shared/tasks/countdown/score.js';
import { embeddedModelPath, readModelDirectory } from '../../../shared/model/model-directory.js';
import { loadTokenizer, type Tokenizer } from '../../../shared/model/tokenizer.js';
import { answeredProblems } from '../../../tools/pretrain/corpus.js';
import { forms } from '../../support/countdown-task.js';

const heldOut = embeddedDataset;

describe('the pretraining corpus of the embedded model', () => {
  let tokenizer: Tokenizer;
  before(async () => {
    tokenizer = await loadTokenizer(await readModelDirectory(embeddedModelPath));
  });

  /** The first texts of a corpus, taken apart again. */
  function read(mistakes: number, count: number) {
    const corpus = answeredProblems(tokenizer, { heldOut, mistakes, seed: 3 });
    return Array.from({ length: count }, () => {
      const { tokens, targets, weights } = corpus.next().value;
      const start = weights.indexOf(1); // the first answer token is the target of this one
      const prompt = tokenizer.decode(tokens.subarray(0, start + 1));
      const [, numbers, target] = /^([\d ,]+)\D+(\d+)\D*$/.exec(prompt) ?? assert.fail(prompt);
      const problem = problemOf(numbers!.split(/\D+/).filter(Boolean).map(Number), Number(target));
      assert.equal(targets.at(-1), tokenizer.eosTokenIds[0]);
      assert(weights.subarray(start).every((weight) => weight === 1));
      const answer = tokenizer.decode(targets.subarray(start, -1));
      return { problem, score: scoreAnswer(forms.compact, problem, answer, zeroOrOne) };
    });
  }

  it('the corpus answers every problem right without mistakes', () => {
    for (const { score } of read(0, 500)) assert(score.isCorrect);
  });

  it('the corpus uses the given numbers in a mistake too, which is rarely right by chance', () => {
    const scores = read(1, 500).map(({ score }) => score);
    assert(scores.every(({ reason }) => reason !== 'wrong_numbers' && reason !== 'unbalanced'));
    assert(scores.filter(({ isCorrect }) => isCorrect).length < 50);
  });

  it('the corpus has the requested share of mistakes', () => {
    const right = read(0.5, 2_000).filter(({ score }) => score.isCorrect).length;
    assert(right > 900 && right < 1_150, String(right));
  });

  it('the corpus never contains a problem that is reserved for evaluation', () => {
    const kept = new Set(
      generateProblems({ ...heldOut, trainSize: 1 })
        .slice(0, heldOut.testSize)
        .map(({ problem }) => problemKey(problem)),
    );
    for (const { problem } of read(0.5, 3_000)) assert(!kept.has(problemKey(problem)));
  });
});

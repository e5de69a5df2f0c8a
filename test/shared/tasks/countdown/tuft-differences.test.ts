import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { evaluate, print } from '../../../../shared/tasks/countdown/parser.js';
import { problemOf } from '../../../../shared/tasks/countdown/problem.js';
import { scoreAnswer } from '../../../../shared/tasks/countdown/score.js';
import { toNumber } from '../../../../shared/tasks/rational.js';
import { embeddedModelPath } from '../../../../shared/model/model-directory.js';
import type { RewardSpec } from '../../../../shared/tasks/countdown/spec.js';
import { anyExpression, leaves } from '../../../support/arithmetic.js';
import { forms, zeroOrOne } from '../../../support/countdown-task.js';
import { hostileCorpus, type HostileCompletion } from '../../../support/hostile-corpus.js';
import { tuftReward, type TuftOutcome } from '../../../support/tuft-rules.js';

const repository = join(embeddedModelPath, '..', '..', '..');
const read = (...path: string[]) => readFileSync(join(repository, ...path), 'utf8');

const formatScore = 0.1;
const continuous: RewardSpec = { ...zeroOrOne, formatScore, shaping: 'continuous' };

const ours = ({ style, problem, completion }: HostileCompletion) =>
  scoreAnswer(forms[style], problem, completion, continuous);
const theirs = ({ problem: { target, numbers }, completion }: HostileCompletion) =>
  tuftReward(completion, target, numbers, formatScore, true);

/** TuFT knows answers in tags only. */
const corpus = hostileCorpus().filter(({ style }) => style !== 'compact');

describe("our model of TuFT's rules", () => {
  it("our model of TuFT's rules gives what TuFT itself gave, for each hostile completion", () => {
    // Written by test/compat/tuft-rewards.py, which runs TuFT's own code.
    const golden = z
      .object({ rewards: z.record(z.string(), z.union([z.number(), z.string()])) })
      .parse(
        JSON.parse(read('test', 'shared', 'tasks', 'countdown', 'golden', 'tuft-rewards.json')),
      );
    for (const entry of corpus) {
      const key = createHash('sha256')
        .update(`${entry.problem.id}\n`)
        .update(entry.completion, 'utf16le')
        .digest('hex')
        .slice(0, 16);
      const outcome = theirs(entry);
      const shown = Number.isNaN(outcome) ? 'nan' : outcome;
      const expected = golden.rewards[key];
      const isSame =
        typeof shown === 'number' && typeof expected === 'number'
          ? Math.abs(shown - expected) < 1e-12
          : shown === expected;
      assert(isSame, `${entry.completion.slice(0, 80)}: ${shown}, TuFT gave ${expected}`);
    }
  });
});

describe('our rules and those of TuFT', () => {
  it("our rules differ from TuFT's over the hostile completions exactly where the table says so", () => {
    for (const entry of corpus) {
      const outcome = theirs(entry);
      const { reward, reason } = ours(entry);
      const isSame = typeof outcome === 'number' && Math.abs(outcome - reward) < 1e-12;
      const shown = `${JSON.stringify(entry.completion.slice(0, 80))}: ${outcome}, here ${reason}`;
      assert.equal(isSame, entry.differs === undefined, shown);
    }
  });

  const rows = [
    ...read('shared', 'tasks', 'countdown', 'scoring.md')
      .split('## Where this differs')[1]!
      .matchAll(/^\| `([a-z-]+)` +\|.*?\| ([a-z, ]+?) +\| ([a-z_, ]+?) +\| .+ \|$/gm),
  ].map(([, name, tuft, here]) => ({ name: name!, tuft: tuft!, here: here! }));

  it('the table has a row for every difference, and every row has a completion', () => {
    const shown = new Set(corpus.flatMap(({ differs }) => differs ?? []));
    assert.deepEqual(new Set(rows.map(({ name }) => name)), shown);
  });

  for (const { name, tuft, here } of rows) {
    it(`the difference ${name} is ${tuft} by TuFT's rules and ${here} by ours`, () => {
      const entries = corpus.filter(({ differs }) => differs === name);
      assert.deepEqual(
        new Set(entries.map((entry) => inWords(theirs(entry)))),
        new Set(tuft.split(', ')),
      );
      assert.deepEqual(
        new Set(entries.map((entry) => ours(entry).reason)),
        new Set(here.split(', ')),
      );
    });
  }

  it("our rules and TuFT's agree on all expressions of our grammar except near misses", () => {
    fc.assert(
      fc.property(anyExpression, fc.integer({ min: -50, max: 150 }), (expression, target) => {
        const numbers = leaves(expression);
        const text = `<answer>${print(expression)}</answer>`;
        const value = evaluate(expression);
        const distance = value === undefined ? 1 : Math.abs(toNumber(value) - target);
        fc.pre(distance === 0 || distance > 1e-4);
        const { reward } = scoreAnswer(forms.fewshot, problemOf(numbers, target), text, continuous);
        const outcome = tuftReward(text, target, numbers, formatScore, true);
        assert(typeof outcome === 'number' && Math.abs(outcome - reward) < 1e-9, text);
      }),
      { numRuns: 1_000 },
    );
  });
});

function inWords(outcome: TuftOutcome): string {
  if (typeof outcome === 'string') return outcome === 'crash' ? 'exception' : outcome;
  if (Number.isNaN(outcome)) return 'nan';
  if (outcome === 1) return 'right';
  if (outcome === 0) return 'nothing';
  return outcome === formatScore ? 'format' : 'partial';
}

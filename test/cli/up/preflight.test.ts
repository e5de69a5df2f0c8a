import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { reportCut } from '../../../cli/up/preflight.js';
import type { Task } from '../../../shared/tasks/task.js';
import { datasetOf } from '../../../shared/tasks/dataset.js';

/** What is said of problems whose solutions are their ids, each of which takes `eachMs` to find. */
function said(
  ids: readonly string[],
  maxTokens: number,
  { solution, eachMs = 0 }: { solution?: Task['solution']; eachMs?: number } = {},
): string[] {
  const train = ids.map((id) => ({ id, difficulty: 'd' }));
  const lines: string[] = [];
  const solves = { solution: solution ?? (({ id }) => id) } satisfies Pick<Task, 'solution'>;
  let now = -eachMs;
  const report = (line: string) => lines.push(line);
  reportCut(solves, datasetOf('t', [], train), maxTokens, report, () => (now += eachMs));
  return lines;
}

describe('answers that --max-tokens cuts off', () => {
  it('answers that are cut off are reported before the start, with the length that they need', () => {
    assert.deepEqual(said(['1+2', '12*(3+4)', '1+2+3'], 6), [
      '--max-tokens 6 cuts off the solutions of 1 of the 3 problems that were tried: give at least 9',
    ]);
  });

  it('answers that fit with the token that ends them are not reported, nor problems without a solution', () => {
    assert.deepEqual(said(['1+2', '1+2+3'], 6), []);
    assert.deepEqual(said(['1+2'], 1, { solution: () => ({ reason: 'without a solution' }) }), []);
    assert.deepEqual(said([], 1), []);
  });

  it('problems are tried for 20 ms, so that those that take long to solve do not hold up the start', () => {
    assert.deepEqual(said(['1+2', '1*2', '1-2', '12*(3+4)'], 3, { eachMs: 9 }), [
      '--max-tokens 3 cuts off the solutions of 3 of the 3 problems that were tried: give at least 4',
    ]);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { reportCut } from '../../../cli/up/preflight.js';
import type { Task } from '../../../shared/tasks/task.js';
import { datasetOf } from '../../../shared/tasks/dataset.js';

/** What is said of problems whose solutions are their ids. */
function said(ids: readonly string[], maxTokens: number, solution?: Task['solution']): string[] {
  const train = ids.map((id) => ({ id, difficulty: 'd' }));
  const lines: string[] = [];
  const solves = { solution: solution ?? (({ id }) => id) } satisfies Pick<Task, 'solution'>;
  reportCut(solves, datasetOf('t', [], train), maxTokens, (line) => lines.push(line));
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
    assert.deepEqual(
      said(['1+2'], 1, () => ({ reason: 'without a solution' })),
      [],
    );
    assert.deepEqual(said([], 1), []);
  });
});

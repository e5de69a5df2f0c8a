import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { alignedLines } from '../../cli/columns.js';

describe('the lines of a table', () => {
  const rows = [
    ['queue', 'waiting', ''],
    ['groups', '3', 'is full'],
  ];

  it('the columns of a table are as wide as their widest cell, and the last one is not padded', () => {
    assert.deepEqual(alignedLines(rows), ['queue   waiting  ', 'groups  3        is full']);
  });

  it('a column of a table that is aligned to the right is padded on its left', () => {
    const isRight = (column: number) => column > 0;
    assert.deepEqual(alignedLines(rows, isRight), [
      'queue   waiting         ',
      'groups        3  is full',
    ]);
  });
});

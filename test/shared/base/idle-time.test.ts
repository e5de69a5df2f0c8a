import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { IdleTime } from '../../../shared/base/idle-time.js';

describe('idle time', () => {
  it('idle time is summed by cause, and each part is reported once', () => {
    let now = 5;
    const reported: [string, number][] = [];
    const idle = new IdleTime(
      { input: 0, output: 1 },
      () => now,
      (...part) => reported.push(part),
    );
    now = 7; // busy until here
    idle.idleFor('input');
    now = 10;
    idle.settle();
    now = 11;
    idle.idleFor('output');
    now = 13;
    idle.idleFor(undefined);
    now = 20;
    assert.deepEqual(idle.seconds, { input: 4, output: 3 });
    assert.deepEqual(reported, [
      ['input', 3],
      ['input', 1],
      ['output', 2],
    ]);
  });
});

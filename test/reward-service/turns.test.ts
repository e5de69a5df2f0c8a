import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RequestRefused } from '../../reward-service/score-requests.js';
import { Turns } from '../../reward-service/turns.js';

/** Requests whose completions each take so long, on a clock that only they move. */
function ground(stepMs: number) {
  let now = 0;
  const log: string[] = [];
  const turns = new Turns({
    sliceMs: 5,
    wholeMs: 100,
    now: () => now,
    pause: () => {
      log.push('pause');
      return Promise.resolve();
    },
  });
  function* request(name: string, steps: number): Generator<void, string> {
    for (let i = 0; i < steps; i++) {
      now += stepMs;
      log.push(name);
      yield;
    }
    return name;
  }
  return { turns, request, log };
}

describe('the turns of score requests', () => {
  it('a turn ends after 5 ms, so that nothing else waits longer', async () => {
    const { turns, request, log } = ground(2);
    const { value, busyMs } = await turns.run(request('a', 7));
    assert.equal(value, 'a');
    assert.equal(busyMs, 14);
    assert.equal(log.join(' '), 'pause a a a pause a a a pause a');
  });

  it('turns are given to one request after the other, each after a pause', async () => {
    const { turns, request, log } = ground(1);
    await Promise.all([turns.run(request('a', 2)), turns.run(request('b', 2))]);
    assert.equal(log.join(' '), 'pause a a pause b b');
  });

  it('a request is refused with advice when it has used its whole time', async () => {
    const { turns, request, log } = ground(10);
    await assert.rejects(turns.run(request('a', 1_000)), (error: unknown) => {
      assert(error instanceof RequestRefused);
      assert.equal(error.status, 503);
      assert.equal(error.retryAfterSeconds, 1);
      assert.match(error.message, /^0\.1 s are over and 10 completions scored; send fewer at once/);
      return true;
    });
    assert.equal(log.filter((entry) => entry === 'a').length, 10);
  });

  it('the time of a request includes its wait in the queue, and turns continue after a failed request', async () => {
    const { turns, request, log } = ground(60);
    const outcomes = await Promise.allSettled(
      ['a', 'b', 'c'].map((name) => turns.run(request(name, 2))),
    );
    assert.deepEqual(
      outcomes.map(({ status }) => status),
      ['rejected', 'rejected', 'rejected'],
    );
    assert(!log.includes('b'));
    const later = await turns.run(request('d', 1));
    assert.equal(later.value, 'd');
  });
});

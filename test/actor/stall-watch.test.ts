import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { StallWatch } from '../../actor/stall-watch.js';

describe('a watch for a sampler that hangs', () => {
  it('the watch waits long for the first progress, then ten times the longest wait, at least a minute', () => {
    const watch = new StallWatch(undefined, 600);
    assert.equal(watch.waited(600), undefined);
    assert.equal(watch.waited(1), 601);
    watch.progressed(2);
    assert.equal(watch.limit, 60);
    watch.progressed(20);
    watch.progressed(1);
    assert.equal(watch.limit, 200);
  });

  it('the watch counts silence from the last progress and not while idle', () => {
    const watch = new StallWatch(10, 600);
    for (let i = 0; i < 100; i += 1) {
      assert.equal(watch.waited(9), undefined);
      if (i % 2 === 0) watch.progressed();
      else watch.idle();
    }
    assert.equal(watch.waited(11), 11);
  });

  it('the watch derives its limit from the silence that it has counted', () => {
    const watch = new StallWatch(undefined, 600);
    watch.waited(30);
    watch.progressed();
    assert.equal(watch.limit, 300);
  });

  it('the watch makes its limit twice the time that exceeded it, up to the first limit', () => {
    const watch = new StallWatch(undefined, 600);
    watch.progressed(1);
    watch.exceeded(61);
    watch.exceeded(60); // another call with the same limit
    assert.equal(watch.limit, 122);
    watch.exceeded(500);
    assert.equal(watch.limit, 600);
    const fixed = new StallWatch(10, 600);
    fixed.exceeded(10);
    assert.equal(fixed.limit, 10);
  });
});

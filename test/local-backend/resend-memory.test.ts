import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ResendMemory } from '../../local-backend/resend-memory.js';

describe('the memory of requests', () => {
  it('answers a copy with what the first led to', () => {
    const memory = new ResendMemory<number>(10);
    assert.equal(
      memory.once('a', () => 1),
      1,
    );
    assert.equal(
      memory.once('a', () => 2),
      1,
    );
    assert.equal(
      memory.once('b', () => 3),
      3,
    );
  });

  it('does not remember a request that was refused', () => {
    const memory = new ResendMemory<number>(10);
    assert.throws(() =>
      memory.once('a', () => {
        throw new Error('busy');
      }),
    );
    assert.equal(
      memory.once('a', () => 2),
      2,
    );
  });

  it('makes anew what can no longer be used', () => {
    const memory = new ResendMemory<number>(10);
    memory.once('a', () => 1);
    assert.equal(
      memory.once(
        'a',
        () => 2,
        (known) => known !== 1,
      ),
      2,
    );
  });

  it('forgets the oldest beyond its capacity', () => {
    const memory = new ResendMemory<string>(2);
    for (const key of ['a', 'b', 'c']) memory.once(key, () => `first ${key}`);
    assert.equal(
      memory.once('c', () => 'again'),
      'first c',
    );
    assert.equal(
      memory.once('a', () => 'again'),
      'again',
    );
  });
});

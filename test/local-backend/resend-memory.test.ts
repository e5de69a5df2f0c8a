import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ResendMemory } from '../../local-backend/resend-memory.js';

describe('the resend memory', () => {
  it('the resend memory returns the first result for a resent request', () => {
    const memory = new ResendMemory<number>(10);
    assert.equal(
      memory.getOrCreate('a', () => 1),
      1,
    );
    assert.equal(
      memory.getOrCreate('a', () => 2),
      1,
    );
    assert.equal(
      memory.getOrCreate('b', () => 3),
      3,
    );
  });

  it('the resend memory executes a forgotten request again', () => {
    const memory = new ResendMemory<number>(10);
    memory.getOrCreate('a', () => 1);
    memory.forget('a');
    assert.equal(
      memory.getOrCreate('a', () => 2),
      2,
    );
  });

  it('the resend memory does not remember a refused request', () => {
    const memory = new ResendMemory<number>(10);
    assert.throws(() =>
      memory.getOrCreate('a', () => {
        throw new Error('busy');
      }),
    );
    assert.equal(
      memory.getOrCreate('a', () => 2),
      2,
    );
  });

  it('the resend memory replaces a result that is no longer usable', () => {
    const memory = new ResendMemory<number>(10);
    memory.getOrCreate('a', () => 1);
    assert.equal(
      memory.getOrCreate(
        'a',
        () => 2,
        (known) => known !== 1,
      ),
      2,
    );
  });

  it('the resend memory evicts the oldest entry beyond its capacity', () => {
    const memory = new ResendMemory<string>(2);
    for (const key of ['a', 'b', 'c']) memory.getOrCreate(key, () => `first ${key}`);
    assert.equal(
      memory.getOrCreate('c', () => 'again'),
      'first c',
    );
    assert.equal(
      memory.getOrCreate('a', () => 'again'),
      'again',
    );
  });
});

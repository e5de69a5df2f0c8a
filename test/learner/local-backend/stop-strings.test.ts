import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { lengthAtStop } from '../../../learner/local-backend/stop-strings.js';

const words = ['so', ' it', ' en', 'ds.', '\n', 'more'];
const decode = (tokens: Int32Array) => [...tokens].map((token) => words[token]!).join('');
const all = Int32Array.from(words.keys());

describe('a stop string', () => {
  it('ends a rollout with the token that completes it', () => {
    assert.equal(lengthAtStop(all, decode, ['ends']), 4);
    assert.equal(lengthAtStop(all, decode, ['\n']), 5);
  });

  it('is the earliest of several', () => {
    assert.equal(lengthAtStop(all, decode, ['more', ' it']), 2);
  });

  it('may be completed by the first or by the last token', () => {
    assert.equal(lengthAtStop(all, decode, ['s']), 1);
    assert.equal(lengthAtStop(all, decode, ['more']), 6);
  });

  it('leaves alone what does not hold it', () => {
    assert.equal(lengthAtStop(all, decode, ['never']), undefined);
    assert.equal(lengthAtStop(all, decode, []), undefined);
  });
});

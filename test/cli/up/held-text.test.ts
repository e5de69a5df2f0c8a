import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { heldText } from '../../../cli/up/progress.js';

describe('what the screen says of tickets that actors keep', () => {
  const held = { v: 1, at: 0, kind: 'held', split: 'train', limitSeconds: 60 } as const;

  it('says how long, and when they are taken back', () => {
    const text = heldText({ ...held, tickets: 1, withdrawn: 0, longestSeconds: 12.4 });
    assert.equal(
      text,
      'actors have kept 1 train ticket for up to 12 s, longer than usual: taken back after 60 s',
    );
  });

  it('says how many were taken back', () => {
    const text = heldText({ ...held, tickets: 3, withdrawn: 2, longestSeconds: 61 });
    assert.match(text, /kept 3 train tickets for up to 61 s.*: 2 taken back and issued again$/);
  });
});

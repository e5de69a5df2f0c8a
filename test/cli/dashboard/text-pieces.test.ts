import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { textPieces } from '../../../cli/dashboard/run/sampled-group.js';

/** Each token is a byte of UTF-8; 0 is special and spells nothing. */
const decode = (tokens: ArrayLike<number>) =>
  Buffer.from(Array.from(tokens).filter((token) => token !== 0)).toString('utf8');

describe('the pieces of an answer', () => {
  it('the pieces of an answer are its tokens', () => {
    const pieces = textPieces([...Buffer.from('a+b')], decode);
    assert.deepEqual(
      pieces.map(({ text }) => text),
      ['a', '+', 'b'],
    );
    assert.deepEqual(pieces[1], { text: '+', from: 1, to: 2 });
  });

  it('the tokens of one character are one piece', () => {
    const pieces = textPieces([...Buffer.from('é😀!')], decode);
    assert.deepEqual(
      pieces.map(({ text, from, to }) => [text, from, to]),
      [
        ['é', 0, 2],
        ['😀', 2, 6],
        ['!', 6, 7],
      ],
    );
  });

  it('the pieces of an answer cover every token, also special ones and those of an incomplete character', () => {
    const tokens = [...Buffer.from('é').subarray(0, 1), 0, 0x61];
    const pieces = textPieces(tokens, decode);
    assert.deepEqual(
      pieces.flatMap(({ from, to }) => tokens.slice(from, to)),
      tokens,
    );
    assert.equal(pieces.at(-1)?.text, 'a');
  });
});

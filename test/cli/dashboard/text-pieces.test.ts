import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sampledGroup, type SampledPiece } from '../../../cli/dashboard/run/sampled-group.js';
import { rolloutGroup, scoredGroup } from '../../support/messages.js';

/** Each token is a byte of UTF-8; 0 is special and spells nothing. */
const decode = (tokens: ArrayLike<number>) =>
  Buffer.from(Array.from(tokens).filter((token) => token !== 0)).toString('utf8');

/** The pieces that are shown of an answer; the logprob of its token i is -i. */
function piecesOf(tokens: readonly number[]): SampledPiece[] {
  const rollout = {
    tokens: Int32Array.from(tokens),
    behaviorLogprobs: Float32Array.from(tokens, (_, i) => -i),
    versions: [[6, tokens.length - 1] as [number, number], [7, 1] as [number, number]],
    stopReason: 'stop' as const,
  };
  const shown = sampledGroup(scoredGroup({ group: rolloutGroup({ rollouts: [rollout] }) }), decode);
  return shown.rollouts[0]!.pieces;
}

describe('the pieces of an answer', () => {
  it('the pieces of an answer are its tokens', () => {
    const pieces = piecesOf([...Buffer.from('a+b')]);
    assert.deepEqual(
      pieces.map(({ text }) => text),
      ['a', '+', 'b'],
    );
    assert.deepEqual(pieces[1], { text: '+', from: 1, to: 2, logprob: -1, version: 6 });
  });

  it('the tokens of one character are one piece, with the sum of their logprobs and the version of the last', () => {
    const pieces = piecesOf([...Buffer.from('é😀!')]);
    assert.deepEqual(
      pieces.map(({ text, from, to, logprob, version }) => [text, from, to, logprob, version]),
      [
        ['é', 0, 2, -1, 6],
        ['😀', 2, 6, -14, 6],
        ['!', 6, 7, -6, 7],
      ],
    );
  });

  it('the pieces of an answer cover every token, also special ones and those of an incomplete character', () => {
    const tokens = [...Buffer.from('é').subarray(0, 1), 0, 0x61];
    const pieces = piecesOf(tokens);
    assert.deepEqual(
      pieces.flatMap(({ from, to }) => tokens.slice(from, to)),
      tokens,
    );
    assert.equal(pieces.at(-1)?.text, 'a');
  });
});

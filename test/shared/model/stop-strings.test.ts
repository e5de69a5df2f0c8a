import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  goesOnAfterStop,
  lengthAtStop,
  specialTokenOf,
  StopStringMatcher,
} from '../../../shared/model/stop-strings.js';
import { loadTokenizer } from '../../../shared/model/tokenizer.js';
import { chatModel } from '../../support/chat-model.js';
import { tinyModel } from '../../support/tiny-model.js';

const words = ['so', ' it', ' en', 'ds.', '\n', 'more'];
const decode = (tokens: Int32Array) => [...tokens].map((token) => words[token]!).join('');
const all = Int32Array.from(words.keys());

describe('a stop string', () => {
  it('a stop string ends a rollout with the token that completes it', () => {
    assert.equal(lengthAtStop(all, decode, ['ends']), 4);
    assert.equal(lengthAtStop(all, decode, ['\n']), 5);
  });

  it('a stop string is the earliest of several', () => {
    assert.equal(lengthAtStop(all, decode, ['more', ' it']), 2);
  });

  it('a stop string may be completed by the first or by the last token', () => {
    assert.equal(lengthAtStop(all, decode, ['s']), 1);
    assert.equal(lengthAtStop(all, decode, ['more']), 6);
  });

  it('a stop string does not end a rollout that does not contain it', () => {
    assert.equal(lengthAtStop(all, decode, ['never']), undefined);
    assert.equal(lengthAtStop(all, decode, []), undefined);
  });
});

describe('going on after a stop string', () => {
  const text = (tokens: ArrayLike<number>) => Array.from(tokens, (token) => words[token]!).join('');
  const goesOn = (...tokens: number[]) =>
    goesOnAfterStop(Int32Array.from(tokens), text, ['ends', '\n']);

  it('a rollout goes on only if tokens follow the one that completes a stop string', () => {
    assert(!goesOn());
    assert(!goesOn(0, 1, 5));
    assert(!goesOn(1, 2, 3));
    assert(goesOn(1, 2, 3, 5));
    assert(goesOn(4, 0));
  });

  it('tokens without a text do not hide a stop string', () => {
    const silent = (tokens: ArrayLike<number>) =>
      text(Array.from(tokens).filter((token) => token !== 9));
    const hidden = [1, 2, ...Array<number>(20).fill(9), 3];
    assert(goesOnAfterStop(Int32Array.of(...hidden, 5), silent, ['ends']));
    assert(!goesOnAfterStop(Int32Array.from(hidden), silent, ['ends']));
  });

  it('a stop string that only one of the two ways of decoding shows does not count', () => {
    const whole = (tokens: ArrayLike<number>) => (tokens.length > 2 ? 'ends' : text(tokens));
    assert(!goesOnAfterStop(Int32Array.of(0, 1, 2, 5), whole, ['ends']));
  });
});

describe('watching for a stop string', () => {
  const read: string[] = [];
  const watch = (...stops: string[]) => {
    const spelt = (tokens: readonly number[]) => {
      const text = tokens.map((token) => words[token]!).join('');
      read.push(text);
      return text;
    };
    const stopWatch = new StopStringMatcher(spelt, stops);
    return (...tokens: number[]) => stopWatch.isStopped(tokens);
  };

  it('the watch finds a stop string with the token that completes it', () => {
    const isStopped = watch('ends');
    assert(!isStopped(0, 1, 2));
    assert(isStopped(0, 1, 2, 3));
    assert(!isStopped(0, 1, 3));
  });

  it('the watch decodes no token of a rollout while the newest token cannot end a stop string', () => {
    const isStopped = watch('ends');
    isStopped(0, 1);
    read.length = 0;
    assert(!isStopped(0, 1));
    assert(!isStopped(0, 1, 5));
    assert.deepEqual(read, ['more']); // the one token that it had not met
  });

  it('the watch finds a stop string with any number of tokens without a text in it', () => {
    const spelt = (tokens: readonly number[]) => tokens.map((token) => words[token] ?? '').join('');
    const stopWatch = new StopStringMatcher(spelt, ['ends']);
    assert(stopWatch.isStopped([1, 2, ...Array<number>(20).fill(9), 3]));
    assert(!stopWatch.isStopped([1, ...Array<number>(20).fill(9), 3]));
  });

  it('the watch agrees with the search in the finished text, whatever was sampled', () => {
    const token = fc.integer({ min: 0, max: words.length - 1 });
    const stop = fc.constantFrom('so', 's', 'ends.', ' it en', '\nmo', 'oso', 'never');
    fc.assert(
      fc.property(fc.array(token, { maxLength: 12 }), fc.array(stop), (tokens, stops) => {
        const isStopped = watch(...stops);
        const at = tokens.findIndex((_, i) => isStopped(...tokens.slice(0, i + 1)));
        const length = lengthAtStop(Int32Array.from(tokens), decode, stops);
        assert.equal(at === -1 ? undefined : at + 1, length);
      }),
    );
  });

  it('the watch ignores the replacement characters of an incomplete character', () => {
    const bytes = [...Buffer.from('好。')]; // a token for each byte
    const stopWatch = new StopStringMatcher((tokens) => Buffer.from(tokens).toString(), ['。']);
    const ended = bytes.map((_, i) => stopWatch.isStopped(bytes.slice(0, i + 1)));
    assert.deepEqual(ended, [false, false, false, false, false, true]);
  });
});

describe('a stop string that names a special token', () => {
  it('a stop string names a special token if it is exactly that token', async () => {
    await using chat = await chatModel();
    const bytes = await loadTokenizer(chat);
    assert.equal(specialTokenOf('<|im_start|>', bytes), 0);
    assert.equal(specialTokenOf('<|im_end|>', bytes), 1);
    for (const text of ['', ' ', 'answer', '<|im_end|>\n', '<|im_end|><|im_end|>', '<|im_end']) {
      assert.equal(specialTokenOf(text, bytes), undefined, text);
    }
  });

  it('a stop string that the tokenizer does not know names no special token', async () => {
    await using model = await tinyModel();
    const characters = await loadTokenizer(model);
    assert.equal(specialTokenOf('<pad>', characters), 0);
    for (const text of ['x', '7']) assert.equal(specialTokenOf(text, characters), undefined, text);
  });

  it('a space names no special token, although some tokenizers leave it out at the beginning of a text', () => {
    const spaces = {
      encode: () => Int32Array.of(5),
      decode: ({ length }: ArrayLike<number>) => ' '.repeat(length - 1),
      unknownTokenId: undefined,
    };
    assert.equal(specialTokenOf(' ', spaces), undefined);
  });
});

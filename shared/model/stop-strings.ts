import type { Tokenizer } from './tokenizer.js';

/**
 * The token that a stop string names, if it is exactly one special token. Decoding drops special tokens, so such a string
 * is never found in a text.
 */
export function specialTokenOf(
  stop: string,
  { encode, decode, unknownTokenId }: Pick<Tokenizer, 'encode' | 'decode' | 'unknownTokenId'>,
): number | undefined {
  const [token, ...others] = encode(stop);
  if (token === undefined || others.length > 0 || token === unknownTokenId) return undefined;
  // Twice, since some tokenizers leave out a space at the beginning.
  return decode([token, token]) === '' ? token : undefined;
}

/**
 * The number of tokens of a rollout up to and including the one that completes its first stop string;
 * undefined if the text contains none.
 *
 * @param tokens [T]
 * @param decode text of the first tokens; the text of a longer prefix must contain every stop string of a shorter one.
 */
export function lengthAtStop(
  tokens: Int32Array,
  decode: (tokens: Int32Array) => string,
  stopStrings: readonly string[],
): number | undefined {
  const holdsStop = (length: number): boolean => {
    const text = decode(tokens.subarray(0, length));
    return stopStrings.some((stop) => text.includes(stop));
  };
  if (stopStrings.length === 0 || !holdsStop(tokens.length)) return undefined;

  let without = 0; // length of a prefix without a stop string
  let within = tokens.length; // length of a prefix with one
  while (within - without > 1) {
    const middle = Math.floor((without + within) / 2);
    if (holdsStop(middle)) within = middle;
    else without = middle;
  }
  return within;
}

/**
 * Whether a rollout goes on after the token that completes a stop string. Samplers look for it in one of two ways, which
 * may disagree where a tokenizer decodes a part of a text otherwise than the whole; here both must find it.
 *
 * @param tokens [T]
 */
export function goesOnAfterStop(
  tokens: Int32Array,
  decode: (tokens: ArrayLike<number>) => string,
  stopStrings: readonly string[],
): boolean {
  const before = tokens.subarray(0, -1);
  if (lengthAtStop(before, decode, stopStrings) === undefined) return false;
  const matcher = new StopStringMatcher(decode, stopStrings);
  const seen: number[] = [];
  return before.some((token) => {
    seen.push(token);
    return matcher.isStopped(seen);
  });
}

/**
 * Detects a complete stop string while a rollout grows token by token. Decodes only the last tokens, and
 * only if the newest token could end a stop string, which most tokens cannot.
 */
export class StopStringMatcher {
  readonly #decode: (tokens: readonly number[]) => string;
  readonly #stopStrings: readonly string[];
  readonly #tailLength: number; // maximum number of tokens with a text in the longest stop string
  readonly #mayEnd = new Map<number, boolean>(); // by token
  readonly #hasText = new Map<number, boolean>(); // by token

  constructor(decode: (tokens: readonly number[]) => string, stopStrings: readonly string[]) {
    this.#decode = decode;
    this.#stopStrings = stopStrings;
    // A token with a text has at least one byte.
    this.#tailLength = Math.max(0, ...stopStrings.map((stop) => Buffer.byteLength(stop)));
  }

  /** @param tokens [T] of one rollout so far; no earlier token completed a stop string. */
  isStopped(tokens: readonly number[]): boolean {
    if (this.#stopStrings.length === 0 || !this.#couldEndWith(tokens.at(-1)!)) return false;
    const tail = this.#decode(this.#tailOf(tokens));
    return this.#stopStrings.some((stop) => tail.includes(stop));
  }

  /** The last tokens, in which a complete stop string would be. Tokens without a text could stand anywhere between them. */
  #tailOf(tokens: readonly number[]): readonly number[] {
    const tail: number[] = [];
    for (let i = tokens.length - 1; i >= 0 && tail.length < this.#tailLength; i--) {
      if (this.#isText(tokens[i]!)) tail.unshift(tokens[i]!);
    }
    return tail;
  }

  #isText(token: number): boolean {
    let isText = this.#hasText.get(token);
    if (isText === undefined) {
      // Twice, since some tokenizers leave out a space at the beginning.
      isText = this.#decode([token, token]) !== '';
      this.#hasText.set(token, isText);
    }
    return isText;
  }

  #couldEndWith(token: number): boolean {
    let mayEnd = this.#mayEnd.get(token);
    if (mayEnd === undefined) {
      const text = this.#decode([token]);
      // A replacement character stands for an incomplete character that is split over several tokens.
      mayEnd =
        text.includes('\ufffd') || this.#stopStrings.some((stop) => text.includes(stop.at(-1)!));
      this.#mayEnd.set(token, mayEnd);
    }
    return mayEnd;
  }
}

/**
 * How many tokens of a rollout belong to it when it ends at the first stop string: up to and with
 * the token that completes it. Undefined if the text holds none.
 *
 * @param tokens [T]
 * @param decode text of the first tokens; a longer prefix must not lose what a shorter one held.
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

  let without = 0; // a prefix that holds no stop string
  let within = tokens.length; // one that does
  while (within - without > 1) {
    const middle = Math.floor((without + within) / 2);
    if (holdsStop(middle)) within = middle;
    else without = middle;
  }
  return within;
}

/**
 * Notices, as a rollout grows token by token, that a stop string is complete. Text is made of the last
 * tokens alone, and only where the newest one could be the end of a stop string: most never are.
 */
export class StopWatch {
  readonly #decode: (tokens: readonly number[]) => string;
  readonly #stopStrings: readonly string[];
  readonly #tailLength: number; // tokens that the longest stop string can have
  readonly #mayEnd = new Map<number, boolean>(); // by token

  constructor(decode: (tokens: readonly number[]) => string, stopStrings: readonly string[]) {
    this.#decode = decode;
    this.#stopStrings = stopStrings;
    // A token spells at least a byte.
    this.#tailLength = Math.max(0, ...stopStrings.map((stop) => Buffer.byteLength(stop)));
  }

  /** @param tokens [T] of one rollout so far, which did not stop before its last. */
  isStopped(tokens: readonly number[]): boolean {
    if (this.#stopStrings.length === 0 || !this.#couldEndWith(tokens.at(-1)!)) return false;
    const tail = this.#decode(tokens.slice(-this.#tailLength));
    return this.#stopStrings.some((stop) => tail.includes(stop));
  }

  #couldEndWith(token: number): boolean {
    let mayEnd = this.#mayEnd.get(token);
    if (mayEnd === undefined) {
      const text = this.#decode([token]);
      // A replacement character stands for a part of one that tokens share.
      mayEnd =
        text.includes('\ufffd') || this.#stopStrings.some((stop) => text.includes(stop.at(-1)!));
      this.#mayEnd.set(token, mayEnd);
    }
    return mayEnd;
  }
}

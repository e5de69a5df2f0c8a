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

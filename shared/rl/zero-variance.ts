/**
 * Whether all rollouts of a group earned exactly the same, so that every advantage is 0 and the
 * group trains nothing. Judged on fractions over the whole group: floating-point rewards may differ
 * in the last bit, and leave-one-out peers may agree where the group does not.
 *
 * @param exactRewards [G] as `-?\d+(/\d+)?`, in lowest terms or not.
 * @throws {RangeError} if the group is empty or a reward is not a fraction.
 */
export function isUniform(exactRewards: readonly string[]): boolean {
  if (exactRewards.length === 0) throw new RangeError('isUniform: the group is empty');
  const [first, ...others] = exactRewards.map(parseFraction);
  return others.every(
    (other) => other.numerator * first!.denominator === first!.numerator * other.denominator,
  );
}

function parseFraction(text: string): { numerator: bigint; denominator: bigint } {
  const [, numerator, denominator = '1'] = /^(-?\d+)(?:\/(\d+))?$/.exec(text) ?? [];
  if (numerator === undefined || /^0+$/.test(denominator)) {
    throw new RangeError(`isUniform: ${JSON.stringify(text)} is not a fraction`);
  }
  return { numerator: BigInt(numerator), denominator: BigInt(denominator) };
}

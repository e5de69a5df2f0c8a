/** A value, and a fingerprint by the expression's value for other numbers: equal ones are the same solution. */
export interface Way {
  readonly numerator: bigint;
  readonly denominator: bigint; // > 0
  readonly print: bigint; // modulo `prime`
}

const prime = 2n ** 61n - 1n;

/**
 * The number of essentially different expressions that use all numbers and reach the target: two are the
 * same if they agree as functions of their numbers.
 *
 * @param numbers all different, so that each can be replaced in the comparison.
 */
export function countAllWays(numbers: readonly number[], target: number): number {
  const reaching = allWays(numbers).filter(
    ({ numerator, denominator }) => numerator === BigInt(target) * denominator,
  );
  return new Set(reaching.map(({ print }) => print)).size;
}

/** Every value of the numbers over all orders, groupings and operators. */
export function allWays(numbers: readonly number[]): Way[] {
  const found: Way[] = [];
  const reduce = (ways: readonly Way[]): void => {
    if (ways.length === 1) found.push(ways[0]!);
    for (const [i, a] of ways.entries()) {
      for (const [j, b] of ways.entries()) {
        if (i === j) continue;
        const rest = ways.filter((_, k) => k !== i && k !== j);
        for (const way of together(a, b)) reduce([...rest, way]);
      }
    }
  };
  reduce(
    numbers.map((number, i) => ({
      numerator: BigInt(number),
      denominator: 1n,
      print: power(7_919n, BigInt(1_000 + i * i)), // large powers, so that small sums do not coincide
    })),
  );
  return found;
}

function together(a: Way, b: Way): Way[] {
  const cross = [a.numerator * b.denominator, b.numerator * a.denominator] as const;
  const denominator = a.denominator * b.denominator;
  const ways = [
    { numerator: cross[0] + cross[1], denominator, print: a.print + b.print },
    { numerator: cross[0] - cross[1], denominator, print: a.print - b.print + prime },
    { numerator: a.numerator * b.numerator, denominator, print: a.print * b.print },
  ];
  if (b.numerator !== 0n) {
    const sign = b.numerator < 0n ? -1n : 1n;
    ways.push({
      numerator: sign * cross[0],
      denominator: sign * a.denominator * b.numerator,
      print: a.print * power(b.print, prime - 2n),
    });
  }
  return ways.map((way) => ({ ...way, print: way.print % prime }));
}

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (let e = exponent; e > 0n; e >>= 1n) {
    if (e & 1n) result = (result * base) % prime;
    base = (base * base) % prime;
  }
  return result;
}

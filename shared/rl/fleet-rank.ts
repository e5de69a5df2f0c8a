import { median } from '../base/statistics.js';

/** How far the claimed logprobs of a group are from those of the policy in training. */
export interface AgedGroup {
  readonly actor: string;
  /** Gaps by the age of the tokens (their staleness, or another key that must be equal to compare). */
  readonly gaps: ReadonlyMap<string, { readonly tokens: number; readonly sum: number }>; // Σ |claimed - current|, nats
}

/** The comparison of an actor's groups with those of the others in one step. */
interface FleetRank {
  /** Logarithm of an e-value, whose expectation is at most 1 for an actor like the others. */
  readonly evidence: number;
  /** For each of its groups, the gap as a multiple of the others' gap at the same ages. */
  readonly ratios: readonly number[];
}

/** With fewer others it is undecidable which of two actors is wrong. */
const leastOthers = 2;

/**
 * Compares each actor's groups with those of the others at equal age, within one step. The
 * movement of the policy is the same for all tokens of an age, so it cancels, however fast it is.
 *
 * The evidence uses ranks alone. If the actor is like the others, its n groups are any n of the N that
 * were compared, so the number T of them among the n largest is hypergeometric. Then the
 * bet E = ½ + ½ · mean over t = 1..n of 1{T ≥ t} / P(T ≥ t) has expectation 1 for any distribution of
 * the gaps.
 *
 * @param groups those of one step, all scored with the same weights.
 * @param noise a gap below this counts as rounding; nats per token.
 * @returns an entry for each actor that could be compared; ages that fewer than two others have are left out.
 */
export function rankAtEqualAge(
  groups: readonly AgedGroup[],
  noise: number,
): Map<string, FleetRank> {
  const levels = levelsByAge(groups);
  const scored = groups.flatMap((group) => {
    const score = multipleOf(group, (age) => {
      const known = [...(levels.get(age)?.values() ?? [])];
      return known.length > leastOthers ? Math.max(noise, median(known)) : undefined;
    });
    return score === undefined ? [] : [{ group, score }];
  });

  const result = new Map<string, FleetRank>();
  for (const actor of new Set(scored.map(({ group }) => group.actor))) {
    const isOwn = ({ group }: (typeof scored)[number]) => group.actor === actor;
    const own = scored.filter(isOwn);
    const n = own.length;
    // On ties, the scores of the others count as larger.
    const top = scored
      .toSorted((a, b) => b.score - a.score || Number(isOwn(a)) - Number(isOwn(b)))
      .slice(0, n)
      .filter(isOwn).length;
    const ratios = own.flatMap(
      ({ group }) =>
        multipleOf(group, (age) => {
          const others = [...(levels.get(age) ?? [])].filter(([name]) => name !== actor);
          if (others.length < leastOthers) return undefined;
          return Math.max(noise, median(others.map(([, level]) => level)));
        }) ?? [],
    );
    result.set(actor, { evidence: evidenceOfRank(top, n, scored.length), ratios });
  }
  return result;
}

/** ln(½ + ½ · mean over t of 1{top ≥ t} / P(T ≥ t)), T hypergeometric. */
function evidenceOfRank(top: number, n: number, total: number): number {
  let logTail = -Infinity; // ln P(T ≥ t), from t = n down
  let logSum = -Infinity;
  for (let t = n; t >= 1; t--) {
    if (total - n >= n - t) {
      const chance = logChoose(n, t) + logChoose(total - n, n - t) - logChoose(total, n);
      logTail = logAdd(logTail, chance);
    }
    if (t <= top) logSum = logAdd(logSum, -Math.min(0, logTail));
  }
  return logAdd(Math.log(0.5), Math.log(0.5) + logSum - Math.log(n));
}

/** The mean gap of each actor's tokens by age, nats per token. */
function levelsByAge(groups: readonly AgedGroup[]): Map<string, Map<string, number>> {
  const sums = new Map<string, Map<string, { tokens: number; sum: number }>>();
  for (const { actor, gaps } of groups) {
    for (const [age, { tokens, sum }] of gaps) {
      const ofAge = sums.get(age) ?? new Map<string, { tokens: number; sum: number }>();
      const before = ofAge.get(actor) ?? { tokens: 0, sum: 0 };
      sums.set(age, ofAge.set(actor, { tokens: before.tokens + tokens, sum: before.sum + sum }));
    }
  }
  const mean = ([actor, { tokens, sum }]: [string, { tokens: number; sum: number }]) =>
    [actor, sum / tokens] as const;
  return new Map([...sums].map(([age, ofAge]) => [age, new Map([...ofAge].map(mean))]));
}

/** The ratio of the group's gap to `level` at the same ages; undefined if `level` covers less than half of its tokens. */
function multipleOf(
  { gaps }: AgedGroup,
  level: (age: string) => number | undefined,
): number | undefined {
  let found = 0;
  let expected = 0;
  let compared = 0;
  let all = 0;
  for (const [age, { tokens, sum }] of gaps) {
    all += tokens;
    const known = level(age);
    if (known === undefined) continue;
    compared += tokens;
    found += sum;
    expected += tokens * known;
  }
  return 2 * compared < all || expected === 0 ? undefined : found / expected;
}

function logChoose(n: number, k: number): number {
  let sum = 0;
  for (let i = 1; i <= k; i++) sum += Math.log((n - k + i) / i);
  return sum;
}

function logAdd(a: number, b: number): number {
  const larger = Math.max(a, b);
  return larger === -Infinity
    ? larger
    : larger + Math.log(Math.exp(a - larger) + Math.exp(b - larger));
}

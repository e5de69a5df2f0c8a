import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createRandom, type Random } from '../../../shared/base/random.js';
import { rankAtEqualAge, type AgedGroup } from '../../../shared/rl/fleet-rank.js';

const noise = 0.01;
const tokens = 100;

/** A group whose tokens have these mean gaps at these ages. */
function group(actor: string, gaps: Record<string, number>): AgedGroup {
  return {
    actor,
    gaps: new Map(Object.entries(gaps).map(([age, gap]) => [age, { tokens, sum: tokens * gap }])),
  };
}

/** Sixteen groups of each of four actors at age 1; `gap` says what each has. */
function step(gap: (actor: number, random: Random) => number, seed = 'step') {
  const random = createRandom(seed);
  const groups = Array.from({ length: 64 }, (_, i) =>
    group(`actor-${i % 4}`, { 1: gap(i % 4, random) }),
  );
  return rankAtEqualAge(groups, noise);
}

describe("an actor's groups among those of the fleet, at equal age", () => {
  it('the rank of gaps gives no evidence against honest actors, however far the policy has moved', () => {
    for (const drift of [0.001, 0.1, 3]) {
      for (const { evidence } of step((_, random) => drift * (1 + random.next())).values()) {
        assert(evidence < Math.log(100), String(evidence));
      }
    }
  });

  it('the rank of gaps has an expected e-value of 1 for an actor like the others', () => {
    let sum = 0;
    let ways = 0;
    for (let first = 0; first < 5; first++) {
      for (let second = first + 1; second < 5; second++) {
        const others = ['a', 'b', 'c'];
        const groups = [1, 2, 3, 4, 5].map((gap, place) =>
          group(place === first || place === second ? 'own' : others.pop()!, { 1: gap }),
        );
        sum += Math.exp(rankAtEqualAge(groups, noise).get('own')!.evidence);
        ways += 1;
      }
    }
    assert.equal(ways, 10);
    assert(Math.abs(sum / ways - 1) < 1e-9, String(sum / ways));
  });

  it('the rank of gaps is a proof within one step when all gaps of an actor exceed all others', () => {
    const ranks = step((actor, random) => (actor === 2 ? 10 : 1) * (1 + random.next()));
    assert(ranks.get('actor-2')!.evidence > Math.log(1e9));
    const { ratios } = ranks.get('actor-2')!;
    assert.equal(ratios.length, 16);
    assert(ratios.every((ratio) => ratio > 5 && ratio < 20));
    for (const other of ['actor-0', 'actor-1', 'actor-3']) {
      assert(ranks.get(other)!.evidence < 0);
      assert(ranks.get(other)!.ratios.every((ratio) => ratio < 2));
    }
  });

  it('the rank counts gaps as multiples of those of the others at the same age, and rounding as one', () => {
    const ranks = rankAtEqualAge(
      [
        group('slow', { 2: 4 }),
        group('a', { 0: 0, 2: 4 }),
        group('b', { 0: 0, 2: 4 }),
        group('c', { 0: noise }),
      ],
      noise,
    );
    assert.deepEqual(ranks.get('slow')!.ratios, [1]);
    assert.deepEqual(ranks.get('c')!.ratios, [1]);
  });

  it('the rank does not compare gaps at ages that fewer than two others have', () => {
    const ranks = rankAtEqualAge(
      [group('slow', { 2: 4 }), group('a', { 0: 0.1 }), group('b', { 0: 0.1, 2: 0.1 })],
      noise,
    );
    assert.equal(ranks.size, 0);
  });

  it('the rank compares a group only if at least half of its tokens have an age that two others have', () => {
    const others = [group('a', { 0: 0.1 }), group('b', { 0: 0.1 })];
    const isCompared = (gaps: Record<string, number>) =>
      rankAtEqualAge([group('own', gaps), ...others], noise).has('own');
    assert.deepEqual([isCompared({ 0: 9, 1: 9 }), isCompared({ 0: 9, 1: 9, 2: 9 })], [true, false]);
  });

  it('the rank of gaps cannot convict a majority: with two of three wrong, the third is compared with them', () => {
    const ranks = rankAtEqualAge(
      [group('honest', { 1: 0.1 }), group('x', { 1: 9 }), group('y', { 1: 9 })],
      noise,
    );
    assert(ranks.get('honest')!.ratios[0]! < 1);
  });
});

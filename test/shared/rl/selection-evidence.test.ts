import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { createRandom } from '../../../shared/base/random.js';
import {
  addEvidence,
  combinedEvidence,
  distanceFromDraw,
  selectionEvidence,
  solveBets,
  solveRateEvidence,
  tilts,
} from '../../../shared/rl/selection-evidence.js';

/** A distribution of 2 to 12 tokens, some of them very improbable. */
const distribution = fc
  .array(fc.double({ min: -14, max: 0, noNaN: true }), { minLength: 2, maxLength: 12 })
  .map((logits) => {
    const total = Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit), 0));
    return logits.map((logit) => logit - total).sort((a, b) => b - a);
  });

describe('the evidence for selection', () => {
  it('the expected bet on a token that was drawn honestly is at most 1, however few tokens are known', () => {
    fc.assert(
      fc.property(distribution, fc.nat(11), (logprobs, cut) => {
        const top = logprobs.slice(0, 1 + (cut % logprobs.length));
        const bets = logprobs.map((logprob) =>
          selectionEvidence([{ logprob, top }], logprobs.length, 0),
        );
        for (const [i] of tilts.entries()) {
          const expected = logprobs.reduce(
            (sum, logprob, v) => sum + Math.exp(logprob + bets[v]![i]!),
            0,
          );
          assert(expected <= 1 + 1e-9, `tilt ${tilts[i]}: ${expected}`);
          // Exactly 1 if every token is known: nothing is given away.
          if (top.length === logprobs.length) assert(expected >= 1 - 1e-9, String(expected));
        }
      }),
    );
  });

  it('the expected bet stays at most 1 if the actor draws from another arithmetic within the band', () => {
    fc.assert(
      fc.property(
        distribution,
        fc.double({ min: 0.001, max: 0.2, noNaN: true }),
        (logprobs, band) => {
          // The largest shift within half a band each way, towards the likelier tokens.
          const shifted = logprobs.map((logprob, v) => logprob + (v === 0 ? band / 2 : -band / 2));
          const total = Math.log(shifted.reduce((sum, each) => sum + Math.exp(each), 0));
          const drawnFrom = shifted.map((each) => each - total);
          for (const [i] of tilts.entries()) {
            const expected = logprobs.reduce((sum, logprob, v) => {
              const bet = selectionEvidence([{ logprob, top: logprobs }], logprobs.length, band)[
                i
              ]!;
              return sum + Math.exp(drawnFrom[v]! + bet);
            }, 0);
            assert(expected <= 1 + 1e-9, `tilt ${tilts[i]}: ${expected}`);
          }
        },
      ),
    );
  });

  it('the evidence convicts an actor that sends the likelier of two draws, and never one that sends its first draw', () => {
    const logprobs = [0.55, 0.3, 0.1, 0.05].map(Math.log);
    const random = createRandom('selection');
    const draw = () => {
      let left = random.next();
      return logprobs.find((logprob) => (left -= Math.exp(logprob)) < 0) ?? logprobs[3]!;
    };
    const evidence = (sent: () => number) => {
      const positions = Array.from({ length: 2_000 }, () => ({ logprob: sent(), top: logprobs }));
      return combinedEvidence(selectionEvidence(positions, 4, 0));
    };
    assert(evidence(() => Math.max(draw(), draw())) > Math.log(1e9));
    assert(evidence(() => Math.min(draw(), draw())) > Math.log(1e9));
    assert(evidence(draw) < Math.log(20));
  });
});

describe('the distance of a token from its random number', () => {
  const ids = (logprobs: readonly number[]) => logprobs.map((_, token) => token);
  /** The token that sampling takes. */
  const chosen = (logprobs: readonly number[], uniform: number) => {
    let left = uniform * logprobs.reduce((sum, logprob) => sum + Math.exp(logprob), 0);
    const token = logprobs.findIndex((logprob) => (left -= Math.exp(logprob)) < 0);
    return token === -1 ? logprobs.length - 1 : token;
  };
  const uniform = fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true });

  it('the distance is 0 for the token that the number chooses, and positive for every other', () => {
    fc.assert(
      fc.property(distribution, uniform, fc.nat(), (logprobs, u, shift) => {
        const top = { tokens: ids(logprobs), logprobs };
        const token = chosen(logprobs, u);
        const other = (token + 1 + (shift % (logprobs.length - 1))) % logprobs.length;
        assert(distanceFromDraw(u, token, top, logprobs.length) <= 1e-12);
        const gap = distanceFromDraw(u, other, top, logprobs.length);
        // A number at the end of an interval belongs to both, up to rounding.
        const between = ids(logprobs).slice(Math.min(token, other) + 1, Math.max(token, other));
        const skipped = between.reduce((sum, v) => sum + Math.exp(logprobs[v]!), 0);
        assert(gap >= skipped - 1e-12, `${gap} for ${skipped}`);
      }),
    );
  });

  it('the distance is never larger where fewer tokens are known', () => {
    fc.assert(
      fc.property(distribution, uniform, fc.nat(11), fc.nat(11), (logprobs, u, sent, cut) => {
        const token = sent % logprobs.length;
        const whole = { tokens: ids(logprobs), logprobs };
        const count = 1 + (cut % logprobs.length);
        const few = { tokens: whole.tokens.slice(0, count), logprobs: logprobs.slice(0, count) };
        const size = logprobs.length;
        const most = distanceFromDraw(u, token, whole, size);
        assert(distanceFromDraw(u, token, few, size) <= most + 1e-12);
      }),
    );
  });

  it('the distance is what the number lacks', () => {
    const top = { tokens: [2, 0, 1], logprobs: [0.5, 0.3, 0.2].map(Math.log) }; // intervals 0 to 0.3, 0.5, 1
    const of = (token: number) => distanceFromDraw(0.4, token, top, 3);
    assert.deepEqual(
      [of(0), of(1), of(2)].map((each) => each.toFixed(6)),
      ['0.100000', '0.000000', '0.100000'],
    );
  });
});

describe('the evidence of what actors solve', () => {
  it('the bets on a group are fair if each of the others could as well have been dealt to the actor', () => {
    const share = fc.double({ min: 0, max: 1, noNaN: true });
    fc.assert(
      fc.property(fc.array(share, { minLength: 2, maxLength: 9 }), (shares) => {
        // Each of the groups could as well have been the actor's own.
        const bets = shares.map((own, i) => solveRateEvidence([own], shares.toSpliced(i, 1)));
        for (const [i] of solveBets.entries()) {
          const mean = bets.reduce((sum, nats) => sum + Math.exp(nats[i]!), 0) / shares.length;
          assert(Math.abs(mean - 1) <= 1e-9, String(mean));
        }
      }),
    );
  });

  it('no group of others is in two bets, and what has no partner is left out', () => {
    const nats = (own: number[], others: number[]) => [...solveRateEvidence(own, others)];
    assert.deepEqual(nats([1, 1, 1], [0]), nats([1], [0]));
    const both = nats([0], [1, 1]).map((each, i) => nats([1], [0, 0])[i]! + each);
    assert.deepEqual(nats([1, 0], [0, 0, 1, 1]), both);
    assert.deepEqual(
      nats([1], []),
      solveBets.map(() => 0),
    );
  });

  it('an actor cannot offset a later selection with past honesty', () => {
    const evidence = new Float64Array(1);
    for (let i = 0; i < 1_000; i++) addEvidence(evidence, Float64Array.of(-1));
    assert.equal(addEvidence(evidence, Float64Array.of(5)), 5);
  });
});

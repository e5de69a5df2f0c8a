import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { createRandom } from '../../../shared/base/random.js';
import {
  combinedEvidence,
  selectionEvidence,
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

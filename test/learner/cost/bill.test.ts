import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { billOf, recordBill } from '../../../learner/cost/bill.js';
import { Meter } from '../../../learner/cost/meter.js';
import { Prices } from '../../../learner/settings/prices.js';
import { ActorLease } from '../../../shared/wire/actor-lease.js';
import type { Usage } from '../../../shared/wire/ledger.js';
import { actorLease } from '../../support/messages.js';

const usage: Usage = {
  tokens: {
    trained: 600_000,
    masked: 5,
    wasted: { stale: 100_000 },
    prompts: { sampled: 50_000, trained: 400_000 },
  },
  counted: [],
  meter: {
    seconds: { sampler: 7_200, trainer: 3_600, reward: 3_600 },
    evaluated: 200_000,
    evaluatedPrompts: 10_000,
    abandoned: { stale: 60_000 },
    undone: 1_000,
  },
};

describe('the bill of a run', () => {
  it('the bill balances: sampled is trained, evaluated, wasted by reason and in flight', () => {
    const { tokens } = billOf(usage, 40_000, Prices.parse({}));
    assert.equal(tokens.sampled, 1_000_000);
    assert.deepEqual(tokens.wastedBy, { stale: 100_000, cancelled_stale: 60_000 });
    const { trained, evaluated, wasted, inFlight, sampled } = tokens;
    assert.equal(sampled, trained + evaluated + wasted + inFlight);
  });

  it('the bill has no money without prices, and GPU time only for roles with GPUs', () => {
    const bill = billOf(usage, 0, Prices.parse({ gpusTrainer: '2', gpusSampler: '0.5' }));
    assert.equal(bill.money, undefined);
    assert.deepEqual(bill.gpuSeconds, { sampler: 3_600, trainer: 7_200, reward: 0 });
  });

  it('the bill charges hours by GPU, or by machine where there is none, and tokens by the million', () => {
    const prices = Prices.parse({
      ...{ gpusTrainer: 2, priceTrainerHour: 3, priceSamplerHour: 0.5 },
      ...{ pricePrefillTokens: 10, priceSampledTokens: 4, priceTrainedTokens: 2 },
    });
    const { money } = billOf(usage, 40_000, prices);
    const expected = { trainer: 6, sampler: 1, prefill: 0.6, sampled: 4, trained: 2.002 };
    assert.deepEqual(money, { ...expected, total: money!['total'] });
    assert.equal(money['total']!.toFixed(6), '13.602000');
  });

  it('the bill charges the tokens of examples as trained ones', () => {
    const tokens = { ...usage.tokens, examples: 500_000 };
    const bill = billOf({ ...usage, tokens }, 0, Prices.parse({ priceTrainedTokens: 2 }));
    assert.equal(bill.money?.['trained'], 3.002);
    assert.equal(recordBill(bill)['run_tokens/examples'], 500_000);
  });

  it('the bill becomes figures of the step, with the reasons apart', () => {
    const figures = recordBill(billOf(usage, 40_000, Prices.parse({ priceTrainedTokens: 2 })));
    assert.equal(figures['run_tokens/in_flight'], 40_000);
    assert.equal(figures['run_tokens_wasted/cancelled_stale'], 60_000);
    assert.equal(figures['held_seconds/sampler'], 7_200);
    assert.equal(figures['cost/total'], 2.002);
  });
});

describe('the meter of a run', () => {
  const lease = (actor: string, groups: number, stale?: number) =>
    actorLease({ actor, groups, ...(stale !== undefined && { abandoned: { stale } }) });

  it('the meter counts the trainer always and each actor while it is live', () => {
    let now = 10;
    const meter = new Meter(() => now);
    now = 15;
    meter.measure([lease('a', 1), lease('b', 1)]);
    now = 25;
    meter.measure([lease('a', 1)]);
    assert.deepEqual(meter.totals.seconds, { sampler: 20, trainer: 15, reward: 15 });
  });

  it('the meter adds what actors abandoned while it watched, also those that were restarted', () => {
    const meter = new Meter(() => 0);
    meter.measure([lease('a', 5, 100)]); // an earlier learner may have counted these
    meter.measure([lease('a', 6, 130)]);
    meter.measure([lease('a', 0, 7)]); // another process
    assert.deepEqual(meter.totals.abandoned, { stale: 37 });
  });

  it('no claim of an actor makes a total that a checkpoint cannot hold', () => {
    const meter = new Meter(() => 0);
    const most = 2 ** 40;
    const unlikely = Number.MAX_SAFE_INTEGER - 2 * most;
    meter.resume({ ...usage, meter: { ...usage.meter, abandoned: { stale: unlikely } } });
    meter.measure([lease('a', 1, 0)]);
    for (let restart = 0; restart < 3; restart++) {
      meter.measure([lease('a', 0, most)]);
      meter.measure([lease('a', 1, most)]);
    }
    assert.deepEqual(meter.totals.abandoned, { stale: Number.MAX_SAFE_INTEGER });
  });

  it('a lease names only known reasons, and no more tokens than an actor draws in its life', () => {
    const claim = (abandoned: object) => ActorLease.safeParse({ ...lease('a', 1), abandoned });
    assert(claim({ stale: 2 ** 40, returned: 3 }).success);
    assert(!claim({ stale: 2 ** 40 + 1 }).success);
    assert(!claim({ [`reason ${'x'.repeat(9)}`]: 1 }).success);
  });

  it('the meter continues after a restart, and counts as undone what the checkpoint lacks', () => {
    const newest = { 'run_tokens/trained': 610_000, 'run_tokens/undone': 1_500 };
    const meter = new Meter(() => 0);
    const seen = { ...newest, 'held_seconds/trainer': 3_700, 'run_tokens/evaluated': 200_500 };
    for (let restart = 0; restart < 2; restart += 1) meter.resume(usage, seen);
    const { undone, seconds, evaluated, abandoned } = meter.totals;
    assert.equal(undone, 11_500);
    assert.deepEqual(seconds, { sampler: 7_200, trainer: 3_700, reward: 3_600 });
    assert.equal(evaluated, 200_500);
    assert.deepEqual(abandoned, { stale: 60_000 });
  });

  it('the meter counts what a crash undid once, also if the sessions after it train nothing', () => {
    const newest = { 'run_tokens/trained': 610_000, 'run_tokens/undone': 1_000 };
    let saved = usage;
    for (let restart = 0; restart < 3; restart += 1) {
      const meter = new Meter(() => 0);
      meter.resume(saved, newest);
      assert.equal(meter.totals.undone, 11_000);
      saved = { ...usage, meter: meter.totals }; // as a session that is stopped before its first step saves it
    }
  });

  it('the meter keeps what actors gave up after the checkpoint, by reason', () => {
    const meter = new Meter(() => 0);
    const newest = {
      'run_tokens_wasted/stale': 900_000, // of groups that the learner had, which the queue has again
      'run_tokens_wasted/cancelled_stale': 61_000,
      'run_tokens_wasted/cancelled_returned': 7,
    };
    for (let restart = 0; restart < 2; restart += 1) meter.resume(usage, newest);
    assert.deepEqual(meter.totals.abandoned, { stale: 61_000, returned: 7 });
  });

  it('the meter counts the examples of steps that a crash undid', () => {
    const meter = new Meter(() => 0);
    const tokens = { ...usage.tokens, trained: 0, examples: 1_000 };
    const newest = { 'run_tokens/trained': 0, 'run_tokens/examples': 1_500 };
    meter.resume({ ...usage, tokens }, newest);
    assert.equal(meter.totals.undone, 1_000 + 500);
  });
});

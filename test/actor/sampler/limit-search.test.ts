import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { GroupLimit } from '../../../actor/group-limit.js';
import { LimitControl, type MetricsReading } from '../../../actor/sampler/limit-control.js';
import { continueSearch, type Epoch, startSearch } from '../../../actor/sampler/limit-search.js';
import { createRandom } from '../../../shared/base/random.js';
import { readEngineMetrics, sglangMetrics } from '../../../shared/engine/engine-metrics.js';

const groupSize = 16;
const lookMs = 2_000;
const groupMs = 20_000; // mean

/** An engine whose throughput is proportional to the groups in flight until its knee. */
interface Simulated {
  knee: number; // groups
  /** Beyond the knee: sequences wait, lose their place in the cache, or share the same throughput. */
  readonly beyond: 'queue' | 'preemptions' | 'saturation';
  readonly noise?: number; // of the throughput, relative
  tickets?: number; // groups that there are
}

/** An actor whose limit follows a simulated engine. */
function simulated(engine: Simulated, start = 8, most = 256) {
  const limit = new GroupLimit(start, most);
  let [clock, tokens, preempted] = [0, 0, 0];
  const control = new LimitControl(limit, () => clock);
  const random = createRandom('limit');
  const held: { readonly place: Disposable; readonly endsAt: number }[] = []; // groups, the oldest first
  const history: number[] = [];
  const { signal } = new AbortController();
  const look = async () => {
    const wanted = Math.min(limit.now, engine.tickets ?? Infinity);
    while ((held[0]?.endsAt ?? Infinity) <= clock) held.shift()!.place[Symbol.dispose]();
    while (held.length < wanted) {
      const endsAt = clock + groupMs * (0.5 + random.next());
      held.push({ place: await limit.enter(signal), endsAt });
    }
    held.sort((a, b) => a.endsAt - b.endsAt);
    const useful = Math.min(held.length, engine.knee);
    const over = held.length - useful;
    const isThrashing = engine.beyond === 'preemptions' && over > 0;
    const noise = 1 + (engine.noise ?? 0) * (2 * random.next() - 1);
    tokens += (100 * useful * noise * lookMs * (isThrashing ? 0.8 : 1)) / 1_000;
    if (isThrashing) preempted++;
    clock += lookMs;
    const isQueueing = engine.beyond === 'queue';
    const metrics: MetricsReading = {
      running: groupSize * (isQueueing ? useful : held.length),
      waiting: isQueueing ? groupSize * over : 0,
      ...{ kvUsage: 0.5, kvTokens: undefined, preemptions: preempted, generatedTokens: tokens },
      ...{ promptTokens: undefined, startedAt: undefined, readAtMs: clock },
    };
    control.look([metrics]);
    history.push(limit.now);
  };
  return {
    limit,
    /** Minutes of the engine. @returns the limits of that time. */
    run: async (minutes: number) => {
      const from = history.length;
      for (let i = 0; i < (60_000 * minutes) / lookMs; i++) await look();
      return history.slice(from);
    },
  };
}

const median = (values: readonly number[]) =>
  [...values].sort((a, b) => a - b)[values.length >> 1]!;

describe('the search for the number of groups in flight', () => {
  for (const beyond of ['queue', 'preemptions', 'saturation'] as const) {
    for (const start of [2, 200]) {
      it(`the limit comes within a fifth of a knee at 40 groups from ${start}, where more groups bring ${beyond}, and stays there`, async () => {
        const engine = { knee: 40, beyond, noise: 0.03 };
        const { run } = simulated(engine, start);
        await run(20);
        const settled = await run(30);
        const middle = median(settled);
        assert(middle >= 32 && middle <= 48, `it is at ${middle}`);
        const far = settled.filter((limit) => limit < 28 || limit > 56).length;
        assert(far <= settled.length / 20, `${far} of ${settled.length} limits are far off`);
        const moves = settled.filter((limit, i) => i > 0 && limit !== settled[i - 1]).length;
        assert(moves < 60, `it moved ${moves} times in 30 minutes`);
      });
    }

    it(`the limit follows the knee up and down, where more groups bring ${beyond}`, async () => {
      const engine = { knee: 20, beyond, noise: 0.03 };
      const { run } = simulated(engine);
      await run(20);
      engine.knee = 80;
      await run(25);
      const high = median(await run(10));
      assert(high >= 64 && high <= 100, `it is at ${high}`);
      engine.knee = 20;
      await run(25);
      const low = median(await run(10));
      assert(low >= 16 && low <= 25, `it is at ${low}`);
    });
  }

  it('the limit stays where it is while there are fewer tickets than it allows', async () => {
    const { run } = simulated({ knee: 100, beyond: 'queue', tickets: 5 });
    assert.deepEqual(new Set(await run(20)), new Set([8]));
  });

  it('the limit never leaves its bounds', async () => {
    const limits = await simulated({ knee: 1_000, beyond: 'queue' }, 8, 64).run(20);
    assert(limits.every((limit) => limit >= 1 && limit <= 64));
    assert.equal(median(limits.slice(-60)), 64);
    const few = await simulated({ knee: 0.2, beyond: 'queue' }).run(20);
    assert.equal(few.at(-1), 1);
  });

  it('a queue lowers the limit at once, by the share of the sequences that waited, and preemptions by a step', () => {
    const calm: Epoch = {
      ...{ isReached: true, tokensPerSecond: 100, waitingShare: 0, hasPreempted: false },
      kvUsage: undefined,
    };
    const search = { ...startSearch(100), step: 1.25 };
    assert.equal(continueSearch(search, { ...calm, waitingShare: 0.3 }, 256).limit, 70);
    assert.equal(continueSearch(search, { ...calm, hasPreempted: true }, 256).limit, 80);
    assert.equal(continueSearch(search, { ...calm, waitingShare: 0.05 }, 256).limit, 125);
  });

  it('the limit does not rise while the cache of keys and values is nearly full', () => {
    const full: Epoch = {
      ...{ isReached: true, tokensPerSecond: 100, waitingShare: 0, hasPreempted: false },
      kvUsage: 0.95,
    };
    const { limit } = continueSearch(startSearch(8), full, 256);
    assert(limit < 8);
    assert(continueSearch(startSearch(8), { ...full, kvUsage: 0.5 }, 256).limit > 8);
  });

  it('an engine that does not count its tokens leaves the limit as it is', () => {
    const limit = new GroupLimit(8, 256);
    let clock = 0;
    const control = new LimitControl(limit, () => clock);
    for (let i = 0; i < 100; i++) {
      clock += 10_000;
      control.look([]);
    }
    assert.equal(limit.now, 8);
  });

  it('an engine that counts only requests that have ended leaves the limit as it is', async () => {
    const limit = new GroupLimit(8, 256);
    let clock = 0;
    const control = new LimitControl(limit, () => clock);
    for (let i = 0; i < 8; i++) await limit.enter(new AbortController().signal);
    for (let i = 0; i < 100; i++) {
      clock += 10_000;
      const text = `sglang:num_running_reqs 128.0\nsglang:generation_tokens_total ${1_000 * i}.0\n`;
      control.look([{ ...readEngineMetrics(text, sglangMetrics), readAtMs: clock }]);
    }
    assert.equal(limit.now, 8);
  });
});

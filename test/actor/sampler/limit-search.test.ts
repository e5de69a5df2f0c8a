import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { GroupLimit } from '../../../actor/group-limit.js';
import { LimitControl, type MetricsReading } from '../../../actor/sampler/limit-control.js';
import { continueSearch, type Epoch, startSearch } from '../../../actor/sampler/limit-search.js';
import { createRandom, type Random } from '../../../shared/base/random.js';
import {
  readEngineMetrics,
  sglangMetrics,
  vllmMetrics,
} from '../../../shared/engine/engine-metrics.js';
import { lognormalSeconds } from '../../../tools/simulate/trace.js';

const groupSize = 16;
const lookMs = 2_000;

/** An engine whose throughput is proportional to the sequences in flight until its knee. */
interface Simulated {
  knee: number; // sequences, in groups
  /** Beyond the knee: sequences wait, lose their place in the cache, or share the same throughput. */
  readonly beyond: 'queue' | 'preemptions' | 'saturation';
  readonly noise?: number; // of the throughput, relative
  tickets?: number; // groups that there are
  /** Seconds of the answers of a group while the engine is below its knee. */
  readonly answers?: (random: Random) => number[];
}

/** All answers of a group last 10 to 30 s. */
function alike(random: Random): number[] {
  return new Array<number>(groupSize).fill(20 * (0.5 + random.next()));
}

/** Each answer has a length of its own, 100 s in the mean and with a long tail. */
function longTailed(random: Random): number[] {
  const draw = lognormalSeconds(100 * Math.exp(-0.5), 1);
  return Array.from({ length: groupSize }, () => draw(random));
}

/** A group that holds its place until its last answer has ended. */
interface HeldGroup {
  readonly place: Disposable;
  left: number; // answers
}

/** An actor whose limit follows a simulated engine. */
function simulated(engine: Simulated, start = 8, most = 256, seed = 'limit') {
  const limit = new GroupLimit(start, most);
  let [clock, tokens, preempted, usedMs] = [0, 0, 0, 0];
  const control = new LimitControl(limit, () => clock);
  const random = createRandom(seed);
  const { answers = alike } = engine;
  let waiting: { readonly group: HeldGroup; left: number }[] = []; // `left` in seconds, below the knee
  let running: typeof waiting = [];
  const history: number[] = [];
  const { signal } = new AbortController();
  const look = async () => {
    while (limit.active < Math.min(limit.now, engine.tickets ?? Infinity)) {
      const group = { place: await limit.enter(signal), left: groupSize };
      waiting.push(...answers(random).map((left) => ({ group, left })));
    }
    const knee = groupSize * engine.knee;
    const free =
      engine.beyond === 'queue' ? Math.max(0, Math.floor(knee) - running.length) : Infinity;
    running.push(...waiting.slice(0, free));
    waiting = waiting.slice(free);
    const isThrashing = engine.beyond === 'preemptions' && running.length > knee;
    if (isThrashing) preempted++;
    const useful = Math.min(running.length, knee) * (isThrashing ? 0.8 : 1);
    const noise = 1 + (engine.noise ?? 0) * (2 * random.next() - 1);
    usedMs += (useful / knee) * lookMs;
    tokens += (6 * useful * noise * lookMs) / 1_000;
    const seconds = ((useful / running.length) * lookMs) / 1_000;
    for (const answer of running) {
      answer.left -= seconds;
      if (answer.left <= 0 && --answer.group.left === 0) answer.group.place[Symbol.dispose]();
    }
    running = running.filter(({ left }) => left > 0);
    clock += lookMs;
    const metrics: MetricsReading = {
      ...{ running: running.length, waiting: waiting.length },
      ...{ kvUsage: 0.5, kvTokens: undefined, preemptions: preempted, generatedTokens: tokens },
      ...{ promptTokens: undefined, startedAt: undefined, parts: 1, readAtMs: clock },
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
    /** Minutes of its largest throughput that were used so far. */
    usedMinutes: () => usedMs / 60_000,
  };
}

const median = (values: readonly number[]) =>
  [...values].sort((a, b) => a - b)[values.length >> 1]!;

const calm: Epoch = {
  ...{ isReached: true, isDraining: false, tokensPerSecond: 100, waitingShare: 0 },
  ...{ hasPreempted: false, kvUsage: undefined },
};

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

  for (const beyond of ['queue', 'saturation'] as const) {
    it(`the limit stays near a knee where answers last 100 s with a long tail and more groups bring ${beyond}, and loses little throughput`, async () => {
      // A group that has just begun has 16 sequences in flight, one in the mean 3.9, so 98 groups have 384.
      const [knee, groups] = [24, 98];
      for (const seed of ['1', '2', '3']) {
        const engine = { knee, beyond, noise: 0.03, answers: longTailed };
        const { run, usedMinutes } = simulated(engine, 8, 256, seed);
        await run(40);
        const before = usedMinutes();
        const settled = await run(80);
        const far = settled.filter((limit) => limit < groups / 1.5 || limit > groups * 1.5).length;
        assert(far <= settled.length / 20, `${far} of ${settled.length} limits are far off`);
        const lost = 1 - (usedMinutes() - before) / 80;
        assert(lost < 0.1, `${lost} of the throughput is lost with seed ${seed}`);
      }
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

  it('a queue lowers the limit at once, by the share of the sequences that waited beyond the usual one, and preemptions by a step', () => {
    const search = { ...startSearch(100), step: 1.25 };
    assert.equal(continueSearch(search, { ...calm, waitingShare: 0.35 }, 256).limit, 80);
    assert.equal(continueSearch(search, { ...calm, hasPreempted: true }, 256).limit, 80);
    assert.equal(continueSearch(search, { ...calm, waitingShare: 0.05 }, 256).limit, 125);
  });

  it('a queue that dissolves within an epoch does not lower the limit', async () => {
    const limit = new GroupLimit(8, 16);
    let clock = 0;
    const control = new LimitControl(limit, () => clock);
    for (let i = 0; i < 8; i++) await limit.enter(new AbortController().signal);
    for (const waiting of [200, 150, 100, 50, 0, 0]) {
      clock += lookMs;
      const text = `vllm:num_requests_running 128\nvllm:num_requests_waiting ${waiting}\nvllm:generation_tokens_total ${clock}\n`;
      control.look([{ ...readEngineMetrics(text, vllmMetrics), readAtMs: clock }]);
    }
    assert.equal(limit.now, 16);
  });

  it('while groups of a higher limit are in flight, only a loss of throughput ends a comparison', () => {
    const from = { limit: 100, tokensPerSecond: 100, epochs: 1 };
    const search = { ...startSearch(50), direction: -1, from } as const;
    const draining = { ...calm, isDraining: true };
    const unsure = { ...draining, tokensPerSecond: 95 };
    for (const epoch of [unsure, { ...unsure, waitingShare: 0.5 }]) {
      assert.deepEqual(continueSearch(search, epoch, 256), search);
    }
    const { limit, direction, rest } = continueSearch(
      search,
      { ...draining, tokensPerSecond: 60 },
      256,
    );
    assert.deepEqual([limit, direction], [100, 1]);
    assert(rest > 0);
  });

  it('the limit does not rise while the cache of keys and values is nearly full', () => {
    const full = { ...calm, kvUsage: 0.95 };
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

import type { EngineMetrics } from '../../shared/engine/engine-metrics.js';
import type { GroupLimit } from '../group-limit.js';
import { continueSearch, type Epoch, type LimitSearch, startSearch } from './limit-search.js';

/** The engine at one moment, and the groups that were in flight. */
interface Sample {
  readonly atMs: number;
  readonly active: number; // groups
  readonly servers: readonly EngineMetrics[];
}

/** An epoch has this many samples at least, and lasts this long. */
const leastSamples = 5;
const leastMs = 10_000;
/** Time for the groups in flight to become as many as a new limit allows; then there are too few tickets. */
const settleMs = 60_000;

/** Moves the limit of groups in flight by what the engine's servers count. An engine that does not count its tokens leaves it as it is. */
export class LimitControl {
  #search: LimitSearch;
  #samples: Sample[] = [];
  #movedAtMs: number;

  /** @param now a steady clock, in ms. */
  constructor(
    private readonly limit: GroupLimit,
    private readonly now: () => number,
  ) {
    this.#search = startSearch(limit.now);
    this.#movedAtMs = now();
  }

  /** Takes a sample of the servers in use, and moves the limit if the samples suffice. */
  look(servers: readonly EngineMetrics[]): void {
    const atMs = this.now();
    const sample = { atMs, active: this.limit.active, servers };
    const [first] = this.#samples;
    if (first !== undefined && first.servers.length !== servers.length) this.#samples = [];
    if (!isReached([sample], this.limit.now)) {
      // The groups of the limit before end, or tickets are scarce.
      if (atMs - this.#movedAtMs < settleMs) return;
    }
    this.#samples.push(sample);
    if (!suffice(this.#samples)) return;
    const epoch = epochOf(this.#samples, this.limit.now);
    this.#samples = [];
    if (epoch === undefined) return;
    this.#search = continueSearch(this.#search, epoch, this.limit.most);
    if (this.#search.limit === this.limit.now) return;
    this.limit.set(this.#search.limit);
    this.#movedAtMs = atMs;
  }
}

function suffice(samples: readonly Sample[]): boolean {
  return samples.length >= leastSamples && samples.at(-1)!.atMs - samples[0]!.atMs >= leastMs;
}

/** @returns undefined if the servers do not count their tokens, or one has begun to count again. */
function epochOf(samples: readonly Sample[], limit: number): Epoch | undefined {
  const [first, last] = [samples[0]!, samples.at(-1)!];
  const ms = last.atMs - first.atMs;
  const tokens = grown(first, last, 'generatedTokens');
  if (tokens === undefined || tokens < 0) return undefined;
  const sum = (figure: 'running' | 'waiting') =>
    samples.reduce((total, { servers }) => total + totalOf(servers, figure), 0);
  const [running, waiting] = [sum('running'), sum('waiting')];
  const usages = samples.flatMap(({ servers }) => servers.flatMap(({ kvUsage }) => kvUsage ?? []));
  return {
    isReached: isReached(samples, limit),
    tokensPerSecond: (1_000 * tokens) / ms,
    waitingShare: waiting / Math.max(1, running + waiting),
    hasPreempted: (grown(first, last, 'preemptions') ?? 0) > 0,
    kvUsage: usages.length === 0 ? undefined : Math.max(...usages),
  };
}

/** Whether about as many groups were in flight as the limit allows. */
function isReached(samples: readonly Sample[], limit: number): boolean {
  const mean = samples.reduce((sum, { active }) => sum + active, 0) / samples.length;
  return mean >= 0.9 * limit && mean <= limit;
}

/** By how much a counter of all servers has grown; undefined if one of them does not have it. */
function grown(
  first: Sample,
  last: Sample,
  counter: 'generatedTokens' | 'preemptions',
): number | undefined {
  const [before, after] = [first, last].map(({ servers }) =>
    servers.length > 0 && servers.every((server) => server[counter] !== undefined)
      ? totalOf(servers, counter)
      : undefined,
  );
  return before === undefined || after === undefined ? undefined : after - before;
}

function totalOf(servers: readonly EngineMetrics[], figure: keyof EngineMetrics): number {
  return servers.reduce((sum, server) => sum + (server[figure] ?? 0), 0);
}

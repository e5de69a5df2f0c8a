import type { EngineMetrics } from '../../shared/engine/engine-metrics.js';
import type { GroupLimit } from '../group-limit.js';
import { continueSearch, type Epoch, type LimitSearch, startSearch } from './limit-search.js';

/** What a server said of itself, and when. */
export interface MetricsReading extends EngineMetrics {
  readonly readAtMs: number; // by a steady clock
}

/** The engine at one moment, and the groups that were in flight. */
interface Sample {
  readonly atMs: number;
  readonly active: number; // groups
  readonly servers: readonly MetricsReading[];
}

/** An epoch has this many samples at least, and lasts this long. */
const leastSamples = 5;
const leastMs = 10_000;
/** Time in which the groups in flight reach a raised limit. If they have not by then, there are too few tickets. */
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
  look(servers: readonly MetricsReading[]): void {
    const atMs = this.now();
    const sample = { atMs, active: this.limit.active, servers };
    const [first] = this.#samples;
    if (first !== undefined && !areAlike(first, sample, this.limit.now)) this.#samples = [];
    if (!isReached([sample], this.limit.now) && atMs - this.#movedAtMs < settleMs) return;
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
  const tokensPerSecond = last.servers.reduce((sum, now, i) => {
    const before = first.servers[i]!;
    const tokens = (now.generatedTokens ?? NaN) - (before.generatedTokens ?? NaN);
    const rate = (1_000 * tokens) / (now.readAtMs - before.readAtMs);
    return sum + (rate >= 0 ? rate : NaN);
  }, 0);
  if (last.servers.length === 0 || !Number.isFinite(tokensPerSecond)) return undefined;
  const usages = samples.flatMap(({ servers }) => servers.flatMap(({ kvUsage }) => kvUsage ?? []));
  return {
    isReached: isReached(samples, limit),
    isDraining: isDraining(last, limit),
    tokensPerSecond,
    waitingShare: Math.min(...samples.map(waitingShare)),
    hasPreempted: totalOf(last.servers, 'preemptions') > totalOf(first.servers, 'preemptions'),
    kvUsage: usages.length === 0 ? undefined : Math.max(...usages),
  };
}

/** Whether two samples may be of one epoch. */
function areAlike(a: Sample, b: Sample, limit: number): boolean {
  return a.servers.length === b.servers.length && isDraining(a, limit) === isDraining(b, limit);
}

/** Whether about as many groups were in flight as the limit allows, or still more. */
function isReached(samples: readonly Sample[], limit: number): boolean {
  const mean = samples.reduce((sum, { active }) => sum + active, 0) / samples.length;
  return mean >= 0.9 * limit;
}

/** Whether groups of a higher limit before are still in flight. */
function isDraining({ active }: Sample, limit: number): boolean {
  return active > limit;
}

function waitingShare({ servers }: Sample): number {
  const waiting = totalOf(servers, 'waiting');
  return waiting / Math.max(1, totalOf(servers, 'running') + waiting);
}

function totalOf(servers: readonly EngineMetrics[], figure: keyof EngineMetrics): number {
  return servers.reduce((sum, server) => sum + (server[figure] ?? 0), 0);
}

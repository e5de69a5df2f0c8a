import { sum } from '../../shared/base/statistics.js';
import { ksDistance, type LengthCounts } from '../../shared/rl/off-policy.js';
import type { Policy } from './policies.js';
import type { Answer, SampledGroup } from './slot-pool.js';

/** What a simulation found. All tokens take equally long, so seconds of sampling stand for numbers of tokens. */
export interface Outcome {
  readonly seconds: number; // of simulated time
  readonly stepsPerHour: number;
  readonly idleShare: number; // of the learner's time
  readonly groupStaleness: ReadonlyMap<number, number>; // trained groups by the age of their oldest token, in versions
  readonly tokenStaleness: ReadonlyMap<number, number>; // seconds of trained tokens by their age
  readonly droppedShare: number; // of the attempts at tickets that ended
  readonly maskedShare: number; // of the tokens of trained groups
  readonly wastedShare: number; // of the sampled tokens: dropped, cancelled or masked
  /**
   * KS distance between the lengths of all answers and of those trained, each counted by the share of its tokens that
   * was trained.
   */
  readonly lengthDistance: number;
  /** The share of the tokens in the longest 2 % of all answers that was trained; the distance above hardly shows them. */
  readonly tailShare: number;
  /** [groups][groupSize] seconds of the whole answers of the trained groups. */
  readonly trained: readonly (readonly number[])[];
}

/** Collects the outcome of a simulation. */
export class Measures {
  readonly #policy: Policy;
  readonly #publishedAt: readonly number[]; // seconds, by version
  readonly #groupStaleness = new Map<number, number>();
  readonly #tokenStaleness = new Map<number, number>();
  readonly #allLengths = new Map<number, number>();
  readonly #trainedLengths = new Map<number, number>();
  readonly #trained: number[][] = [];
  #dropped = 0; // groups
  #sampledSeconds = 0;
  #maskedSeconds = 0;

  /** @param publishedAt grows during the simulation. */
  constructor(policy: Policy, publishedAt: readonly number[]) {
    this.#policy = policy;
    this.#publishedAt = publishedAt;
  }

  drop(group: SampledGroup): void {
    this.#dropped += 1;
    this.#end(group);
  }

  /** @param version of the weights that are trained on the groups. */
  train(groups: readonly SampledGroup[], version: number): void {
    for (const group of groups) {
      this.#end(group);
      add(this.#groupStaleness, version - group.version, 1);
      const whole = group.answers.filter(({ isWhole }) => isWhole);
      this.#trained.push(whole.map(({ seconds }) => seconds));
      for (const answer of whole) this.#trainOn(answer, group.version, version);
    }
  }

  #trainOn(answer: Answer, firstVersion: number, trainedBy: number): void {
    let used = 0;
    let masked = 0;
    for (const [version, seconds] of this.#tokensByVersion(answer, firstVersion)) {
      const age = trainedBy - version;
      if (age > this.#policy.bound) {
        masked += seconds;
      } else {
        used += seconds;
        add(this.#tokenStaleness, age, seconds);
      }
    }
    this.#maskedSeconds += masked;
    add(this.#trainedLengths, lengthBin(answer.seconds), used / (used + masked));
  }

  outcome(seconds: number, run: { steps: number; stepSeconds: number }): Outcome {
    const used = sum([...this.#tokenStaleness.values()]);
    return {
      seconds,
      stepsPerHour: (3_600 * run.steps) / seconds,
      idleShare: 1 - (run.steps * run.stepSeconds) / seconds,
      groupStaleness: this.#groupStaleness,
      tokenStaleness: this.#tokenStaleness,
      droppedShare: this.#dropped / (this.#dropped + this.#trained.length),
      maskedShare: this.#maskedSeconds / (used + this.#maskedSeconds),
      wastedShare: Math.max(0, 1 - used / this.#sampledSeconds), // rounding
      lengthDistance: ksDistance(this.#allLengths, this.#trainedLengths),
      tailShare: tailShare(this.#allLengths, this.#trainedLengths),
      trained: this.#trained,
    };
  }

  #end({ seconds, answers }: SampledGroup): void {
    for (const one of seconds) add(this.#allLengths, lengthBin(one), 1);
    this.#sampledSeconds += sum(answers.map(({ startedAt, endedAt }) => endedAt - startedAt));
  }

  /** Seconds of an answer's tokens by the version that sampled them. */
  #tokensByVersion(answer: Answer, firstVersion: number): [number, number][] {
    const { startedAt, endedAt } = answer;
    if (this.#policy.isAdopting !== true) return [[firstVersion, endedAt - startedAt]];
    const parts: [number, number][] = [];
    for (let version = firstVersion; version < this.#publishedAt.length; version++) {
      const from = Math.max(startedAt, this.#publishedAt[version]!);
      const until = Math.min(endedAt, this.#publishedAt[version + 1] ?? Infinity);
      if (until > from) parts.push([version, until - from]);
    }
    return parts;
  }
}

const tail = 0.02; // of all answers

/**
 * The share of the tokens of the longest answers that was trained.
 *
 * @param all numbers of answers, by their bin.
 * @param trained numbers of answers that were trained; a part of an answer counts in part.
 */
function tailShare(all: LengthCounts, trained: LengthCounts): number {
  const answers = sum([...all.values()]);
  let counted = 0;
  let [tokens, used] = [0, 0];
  for (const [bin, count] of [...all].sort(([a], [b]) => b - a)) {
    if (counted >= tail * answers) break;
    counted += count;
    tokens += count * Math.exp(bin / binsPerFold);
    used += (trained.get(bin) ?? 0) * Math.exp(bin / binsPerFold);
  }
  return used / tokens;
}

const binsPerFold = 100; // of a factor e

/** Lengths that differ by less than a percent count as equal, which keeps the distributions small. */
function lengthBin(seconds: number): number {
  return Math.round(binsPerFold * Math.log(seconds));
}

function add(counts: Map<number, number>, key: number, count: number): void {
  counts.set(key, (counts.get(key) ?? 0) + count);
}

import { z } from 'zod';
import { tokenDraws } from '../base/random.js';
import type { StopStringMatcher } from './stop-strings.js';

export interface GroupRequest {
  readonly prompt: Int32Array; // [P]
  readonly count: number; // rollouts
  readonly temperature: number; // 0: greedy
  readonly maxTokens: number; // of each rollout, the stop token included
  readonly stopTokenIds: readonly number[];
  readonly stopStrings?: readonly string[]; // texts that end a rollout; the token that completes one is kept
  readonly seed: number;
  /** [maxTokens] Tokens that are taken instead of drawn ones, to learn their logprobs as sampling computes them. */
  readonly forced?: Int32Array;
  /** How many of the most probable tokens of each position are wanted as well; only of an engine that shows them. */
  readonly mostProbable?: number;
  /** Whether the logprobs of the prompt's own tokens are wanted as well; only of an engine that may show them. */
  readonly scoresPrompt?: boolean;
}

/**
 * The cache of a rollout after it adopts a newer version. `keep`: the one that older weights wrote, so later tokens come
 * from no single version. `reprefill`: a new one of prompt and answer, so each token is its version's own, at the cost
 * of reading both again.
 */
export const OnAdoption = z.enum(['keep', 'reprefill']);
export type OnAdoption = z.infer<typeof OnAdoption>;

/** One sampled answer. */
export interface SampledRollout {
  readonly tokens: Int32Array; // [T], including the stop token, if any
  readonly behaviorLogprobs: Float32Array; // [T], of the distribution each token was drawn from
  readonly versions: [version: number, count: number][]; // run-length coded, T in all
  readonly stopReason: 'stop' | 'length';
}

/** A rollout while it grows. */
export class RolloutDraft {
  readonly #tokens: number[] = [];
  readonly #logprobs: number[] = [];
  readonly #versions: [version: number, count: number][] = [];
  #isStopped = false;

  /** @param draw the uniform number that chooses the next token. */
  constructor(
    private readonly request: GroupRequest,
    private readonly stops: StopStringMatcher | undefined,
    readonly draw: () => number,
  ) {}

  get length(): number {
    return this.#tokens.length;
  }

  get tokens(): readonly number[] {
    return this.#tokens;
  }

  get lastToken(): number {
    return this.#tokens.at(-1)!;
  }

  /** The token that must come next; undefined if it is drawn. */
  get forcedToken(): number | undefined {
    return this.request.forced?.[this.length];
  }

  get isDone(): boolean {
    return this.#isStopped || this.length === this.request.maxTokens;
  }

  append(token: number, logprob: number, version: number): void {
    this.#tokens.push(token);
    this.#logprobs.push(Math.min(0, logprob)); // rounding may exceed 0
    const run = this.#versions.at(-1);
    if (run?.[0] === version) run[1] += 1;
    else this.#versions.push([version, 1]);
    this.#isStopped =
      this.request.stopTokenIds.includes(token) || this.stops?.isStopped(this.#tokens) === true;
  }

  finish(): SampledRollout {
    return {
      tokens: Int32Array.from(this.#tokens),
      behaviorLogprobs: Float32Array.from(this.#logprobs),
      versions: this.#versions,
      stopReason: this.#isStopped ? 'stop' : 'length',
    };
  }
}

/** A group being sampled. */
export class GroupDraft {
  readonly rollouts: readonly RolloutDraft[];

  constructor(
    readonly request: GroupRequest,
    stops?: StopStringMatcher,
  ) {
    this.rollouts = Array.from(
      { length: request.count },
      (_, index) => new RolloutDraft(request, stops, tokenDraws(request.seed, index)),
    );
  }

  /** Number of tokens of all its rollouts. */
  get length(): number {
    return this.rollouts.reduce((sum, rollout) => sum + rollout.length, 0);
  }
}

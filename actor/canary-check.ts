import { Counter, Histogram } from 'prom-client';
import { coarser, type Arithmetic } from '../shared/base/arithmetic.js';
import { bandOf, compareCanary } from '../shared/rl/canary.js';
import { canaryDigest, type Certificate } from '../shared/wire/canary.js';
import type { PolicyManifest } from '../shared/wire/policy-manifest.js';
import { CanaryNotReproduced } from './sampler/refusal.js';
import type { Sampler, ComputeLogprobs } from './sampler/sampler.js';

const differences = new Histogram({
  name: 'rl_actor_canary_difference_nats',
  help: "Largest difference between a version's canary and what this actor's sampler makes of it, one value per proof (of a version, at each server that loads it, and again after an outage), in nats.",
  buckets: [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.6, 2, 10],
});
const checkSeconds = new Histogram({
  name: 'rl_actor_canary_seconds',
  help: 'Time in which the sampler, or one server of several, reproduces the canary of a version.',
  buckets: [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
});
const uncheckedVersions = new Counter({
  name: 'rl_actor_versions_without_canary_total',
  help: 'Proofs (of a version, at each server that loads it) that were left out because its manifest has no canary, so that nothing proves what this actor samples with.',
});

/** Makes the sampler reproduce the canary of each version that it loads; keeps the results for the certificates of groups. */
export class CanaryCheck {
  readonly #passed = new Map<number, string>(); // digest by version, the oldest first

  /** @param arithmetic the sampler's. */
  constructor(
    private readonly sampler: Pick<Sampler, 'engine'> & Partial<Pick<Sampler, 'kind'>>,
    private readonly arithmetic: Arithmetic,
  ) {}

  /**
   * Checks what has loaded a version: the sampler, or one server of several. A manifest without a canary passes, and is counted.
   *
   * @param where the server's address, for the error.
   * @throws {CanaryNotReproduced} with the largest difference, if it is beyond the band of the arithmetic.
   */
  async require(
    { version, canary, adapter }: PolicyManifest,
    score: ComputeLogprobs,
    signal: AbortSignal,
    where?: string,
  ): Promise<void> {
    if (canary === undefined) {
      uncheckedVersions.inc();
      return;
    }
    const startedAt = performance.now();
    const { texts, places, temperature } = canary;
    const used = coarser(this.arithmetic, canary.arithmetic);
    // The backend samples with weights of its own.
    const format = this.sampler.kind === 'tinker' ? undefined : adapter?.format;
    const isRounded = format !== undefined && format !== 'F32';
    const band = bandOf(used, isRounded);
    const scores = await score({ texts, places, temperature, band }, signal);
    checkSeconds.observe((performance.now() - startedAt) / 1_000);
    const found = compareCanary(canary.logprobs, scores, band, canary.earlier);
    differences.observe(found.difference);
    if (found.isReproduced) {
      this.#remember(version, canaryDigest(version, canary));
      return;
    }
    const { difference, place, mean, compared, closerTo } = found;
    const { largest, mean: meanBand } = band;
    const [text, index] = places[place]!;
    throw new CanaryNotReproduced(
      `${where ?? 'the sampler'} does not reproduce its canary: token ${index} of text ${text} has the logprob ` +
        `${canary.logprobs[place]!.toFixed(4)} by the trainer and ${(scores.logprobs[place] ?? NaN).toFixed(4)} here, a difference of ` +
        `${difference.toPrecision(3)}; on average they differ by ${mean.toPrecision(3)}. ` +
        `${used}${isRounded ? ` with an adapter in ${format}` : ''} allows ${largest} and ${meanBand}. ` +
        (closerTo === undefined ? '' : `It is closer to version ${closerTo}. `) +
        `${compared} of ${places.length} tokens were shown${scores.whyDrawn === undefined ? '' : `, by drawing them, since ${scores.whyDrawn}`}. It samples with other weights, another temperature or a coarser ` +
        'arithmetic than it claims: check its adapter, --model-dir and --sampler-class',
      {
        ...{ version, difference, band: largest, mean, meanBand, place },
        ...(closerTo !== undefined && { closerTo }),
      },
    );
  }

  /** The certificate of a group that these versions sampled; undefined if none of them had a canary. */
  certificate(versions: readonly number[]): Certificate | undefined {
    const canaries = versions.flatMap((version): [number, string][] => {
      const digest = this.#passed.get(version);
      return digest === undefined ? [] : [[version, digest]];
    });
    if (canaries.length === 0) return undefined;
    return { canaries, engine: this.sampler.engine, arithmetic: this.arithmetic };
  }

  #remember(version: number, digest: string): void {
    this.#passed.delete(version);
    this.#passed.set(version, digest);
    if (this.#passed.size > remembered) this.#passed.delete(this.#passed.keys().next().value!);
  }
}

/** A group that is being sampled may have used this many versions since its first. */
const remembered = 1_024;

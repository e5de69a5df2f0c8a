import pLimit from 'p-limit';
import { Counter, Histogram } from 'prom-client';
import { coarser, type Arithmetic } from '../../shared/base/arithmetic.js';
import { errorText } from '../../shared/base/errors.js';
import { createRandom } from '../../shared/base/random.js';
import { compareCanary, logprobBands } from '../../shared/rl/canary.js';
import { logprobGap } from '../../shared/rl/logprob-audit.js';
import type { TokenPairs } from '../../shared/rl/off-policy.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { retainedEvery, type RetainedVersion } from './retained-version.js';
import type { ScoredText, SelectionAudit } from './selection-audit.js';

const audits = new Counter({
  name: 'rl_version_audits_total',
  help:
    'Groups chosen for a comparison of their logprobs with those of the version that they name, by outcome: agrees, differs, ' +
    'busy (earlier ones were not done; also those chosen to be replayed), or unavailable (the backend does not reproduce the canary of the version).',
  labelNames: ['outcome'],
});
const gaps = new Histogram({
  name: 'rl_version_audit_gap_nats',
  help: 'Mean difference between the logprobs that an actor claims and those of the version that it names, one value per compared group, in nats per token.',
  buckets: [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.6, 2, 10],
});

/** A published version, as far as the audit needs it. */
export type AuditedVersion = Pick<PolicyManifest, 'version' | 'samplingSessionId' | 'canary'>;

interface VersionAuditOptions {
  readonly client: Pick<TinkerClient, 'sampler'>;
  /** For a backend that does not sample. */
  readonly retained?: Pick<RetainedVersion, 'version' | 'logprobs'> | undefined;
  readonly share: number; // of the groups
  readonly seed: number;
  readonly temperature: number; // of sampling
  readonly trainer: Arithmetic;
  readonly isAdapterRounded?: boolean; // whether actors may sample with the version's adapter in bfloat16
  /** Called when two groups of an actor are not what the versions that they name would give. */
  readonly onDeceit: (actor: string, gap: number, bound: number, version: number) => Promise<void>;
  /** Looks at the choice of tokens in some groups, with the same sessions. */
  readonly selection: Pick<SelectionAudit, 'isChosen' | 'examine' | 'mostProbable'>;
  readonly log: Logger;
}

/**
 * Largest mean difference over all tokens of a group, in nats a token. It convicts, and in a coarse arithmetic a few tokens are far
 * off, so it is wider than the band of a canary. Only that of fp32 is measured.
 */
const gapBounds: Readonly<Record<Arithmetic, number>> = { fp32: 2e-4, bf16: 0.1, fp8: 0.3 };
/** How much wider it is for adapters in bfloat16: seven times the largest of 656 groups. */
const roundedAdapterGap = 0.005;

/** Rollouts of a group that are compared. */
const maxRollouts = 4;
/** Groups that wait or are compared at once; more are left out, so that the audit never slows anything. */
const maxPending = 4;
/** Groups that convict an actor. */
const maxDeceits = 2;

/** The logprobs of a text at a temperature, [T]; the first is NaN. */
type Score = (text: Int32Array, temperature: number) => Promise<Float32Array>;

/**
 * Compares the logprobs of a few groups with those of exactly the versions that they name, however stale they are: the
 * backend computes them with the weights that it keeps for sampling, or with the one version that is retained if it does not
 * sample. So it works for a fleet that is wrong in one and the same way. It runs beside training.
 *
 * A backend may compute the logprobs of prompts at another temperature, so a version is used only if the backend
 * reproduces the version's canary in this way.
 */
export class VersionAudit {
  readonly #options: VersionAuditOptions;
  readonly #versions = new Map<number, AuditedVersion>();
  readonly #usable = new Map<number, Promise<boolean>>(); // by version
  readonly #deceits = new Map<string, number>(); // groups by actor
  readonly #oneAtATime = pLimit(1);
  #pending = 0;

  constructor(options: VersionAuditOptions) {
    this.#options = options;
  }

  /** Adds a version that is published. */
  add(version: AuditedVersion): void {
    this.#versions.set(version.version, version);
    this.#usable.delete(version.version);
    if (this.#versions.size <= remembered) return;
    const oldest = Math.min(...this.#versions.keys());
    this.#versions.delete(oldest);
    this.#usable.delete(oldest);
  }

  /** Compares a group if it is chosen, or looks at the choice of its tokens. Never rejects. */
  async consider(group: RolloutGroup): Promise<void> {
    const { selection } = this.#options;
    const isCompared = this.#isChosen(group);
    const isExamined = selection.isChosen(group);
    if (!isCompared && !isExamined) return;
    if (this.#pending >= maxPending) {
      audits.inc({ outcome: 'busy' });
      return;
    }
    this.#pending++;
    await this.#oneAtATime(async () => {
      if (isCompared) await this.#compareIfPossible(group);
      if (isExamined) await selection.examine(group, (...text) => this.#mostProbable(...text));
    });
    this.#pending--;
  }

  #isChosen({ ticket, rollouts }: RolloutGroup): boolean {
    const { share, seed, retained } = this.#options;
    const drawn = createRandom(`${seed} version audit ${ticket.ticketId}`).next();
    if (retained === undefined) return drawn < share;
    // Of one version in so many, so that of all groups the share is compared.
    const isOfRetained = rollouts.some(({ versions }) => versions[0]![0] === retained.version);
    return isOfRetained && drawn < share * retainedEvery;
  }

  async #compareIfPossible(group: RolloutGroup): Promise<void> {
    try {
      await this.#compare(group);
    } catch (caught) {
      audits.inc({ outcome: 'unavailable' });
      const { ticketId } = group.ticket;
      const reason = errorText(caught);
      this.#options.log.debug({ ticketId, reason }, 'group not compared with its version');
    }
  }

  async #mostProbable(version: number, text: Int32Array): Promise<ScoredText | undefined> {
    const { client, temperature, selection } = this.#options;
    const session = this.#versions.get(version)?.samplingSessionId;
    if (session === undefined || !(await this.#isUsable(version))) return undefined;
    return client.sampler(session).mostProbable(text, selection.mostProbable, { temperature });
  }

  async #compare({ actor, promptTokens, rollouts, certificate }: RolloutGroup): Promise<void> {
    const { temperature, trainer, isAdapterRounded, onDeceit, log } = this.#options;
    // After an adoption, tokens may follow from a cache that older weights wrote: no version gives their logprobs.
    const whole = rollouts.filter(({ versions }) => versions.length === 1);
    const scores = new Map<number, Score | undefined>(); // of the versions
    for (const [version] of whole.flatMap(({ versions }) => versions)) {
      if (scores.has(version)) continue;
      const score = this.#scoreOf(version);
      const isUsable = score !== undefined && (await this.#isUsable(version));
      scores.set(version, isUsable ? score : undefined);
    }
    const compared = whole
      .flatMap((rollout) => {
        const [version] = rollout.versions[0]!;
        const score = scores.get(version);
        return score === undefined ? [] : { ...rollout, version, score };
      })
      .slice(0, maxRollouts);
    const pairs = await Promise.all(
      compared.map(async ({ score, tokens, behaviorLogprobs }): Promise<TokenPairs> => {
        const all = await score(Int32Array.of(...promptTokens, ...tokens), temperature);
        return { behavior: behaviorLogprobs, current: all.slice(promptTokens.length) };
      }),
    );
    const version = compared.at(-1)?.version ?? -1;
    const gap = pairs.length === 0 ? NaN : logprobGap(pairs);
    // Claims are finite, so a gap that is not is the backend's.
    if (!Number.isFinite(gap)) {
      audits.inc({ outcome: 'unavailable' });
      return;
    }
    const ofArithmetic = gapBounds[coarser(trainer, certificate?.arithmetic ?? 'bf16')];
    const bound = ofArithmetic + (isAdapterRounded === true ? roundedAdapterGap : 0);
    gaps.observe(gap);
    const differs = gap > bound;
    audits.inc({ outcome: differs ? 'differs' : 'agrees' });
    if (!differs) return;
    const groups = (this.#deceits.get(actor) ?? 0) + 1;
    this.#deceits.set(actor, groups);
    log.warn({ actor, version, gap, bound, groups }, 'group not sampled by the version it names');
    if (groups >= maxDeceits) await onDeceit(actor, gap, bound, version);
  }

  /** How the backend computes logprobs with a version's weights; undefined if it cannot. */
  #scoreOf(version: number): Score | undefined {
    const { client, retained } = this.#options;
    const session = this.#versions.get(version)?.samplingSessionId;
    if (session !== undefined) {
      return (text, temperature) => client.sampler(session).logprobs(text, { temperature });
    }
    if (retained?.version !== version) return undefined;
    return (text, temperature) => retained.logprobs(version, text, temperature);
  }

  /** Whether the backend reproduces the version's canary when asked for the logprobs of a text. */
  #isUsable(version: number): Promise<boolean> {
    const known = this.#usable.get(version) ?? this.#reproducesCanary(version);
    this.#usable.set(version, known);
    return known.catch((caught: unknown) => {
      this.#usable.delete(version);
      throw caught;
    });
  }

  async #reproducesCanary(version: number): Promise<boolean> {
    const { trainer, log } = this.#options;
    const canary = this.#versions.get(version)?.canary;
    const score = this.#scoreOf(version);
    if (canary === undefined || score === undefined) return false;
    const { texts, places, temperature } = canary;
    const all = await Promise.all(texts.map((text) => score(text, temperature)));
    const scores = {
      logprobs: Float32Array.from(places, ([text, index]) => all[text]![index]!),
      isBound: places.map(() => false),
    };
    const band = logprobBands[trainer];
    const { isReproduced, difference } = compareCanary(
      canary.logprobs,
      scores,
      band,
      canary.earlier,
    );
    if (!isReproduced) {
      log.warn(
        { version, difference, band },
        'backend does not reproduce the canary: groups of this version are not compared',
      );
    }
    return isReproduced;
  }
}

/** Many more versions than a staleness bound leaves useful. */
const remembered = 256;

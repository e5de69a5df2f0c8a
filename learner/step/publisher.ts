import pLimit from 'p-limit';
import { Gauge } from 'prom-client';
import { StatTable } from '../report/stat-table.js';
import type { IdleClock } from './idle-clock.js';
import type { VersionAudit } from './version-audit.js';
import type { Certificates } from '../groups/certificates.js';
import type { CanarySource } from './canary-source.js';
import { AdapterSource } from './adapter-source.js';
import { PublishedVersions } from './published-versions.js';
import { errorText, PermanentError, UserError } from '../../shared/base/errors.js';
import { markHandled } from '../../shared/base/task-scope.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { PolicyAdapter } from '../../shared/broker/policy-store.js';
import { requireFinite, WeightsNotFinite } from '../../shared/model/lora.js';
import { smallestUsefulVersion, type Rewind } from '../../shared/rl/staleness.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { AdapterKind } from '../../shared/tinker/capability-probe.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type { Canary } from '../../shared/wire/canary.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';

const phaseStats = new StatTable<number>([
  {
    jsonl: 'publish_seconds/{phase}',
    prometheus: 'rl_publish_seconds',
    help: 'Seconds from a step to its weights being available to actors, by phase.',
    buckets: [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
    of: (seconds) => seconds,
  },
]);

const newestPublished = new Gauge({
  name: 'rl_policy_version',
  help: 'Newest policy version that actors can sample with.',
});

export interface PublisherOptions {
  readonly broker: Pick<Broker, 'policy' | 'events' | 'actors' | 'restorations'>;
  readonly client: Pick<
    TinkerClient,
    | 'downloadAdapter'
    | 'downloadExternal'
    | 'createSamplingSession'
    | 'deleteCheckpoint'
    | 'sampler'
  >;
  readonly run: Pick<TrainingRun, 'saveWeightsForSampler' | 'saveWeightsExternal'>;
  readonly backendSamples: boolean;
  readonly canaries: Pick<CanarySource, 'request'>;
  readonly certificates: Pick<Certificates, 'add'>;
  readonly versionAudit: Pick<VersionAudit, 'add'>;
  readonly idle: IdleClock;
  readonly maxStepsOffPolicy: number;
  readonly rewinds: readonly Rewind[];
  /** Actors whose groups are refused. */
  readonly quarantined: () => readonly string[];
  /** All tickets of lower orders have ended. */
  readonly consumedBelow: () => number;
  /** Rejects if another learner leads the run. */
  readonly confirmLead: () => Promise<void>;
  /** Milliseconds of a clock that only rises; replaced in tests. */
  readonly now?: (() => number) | undefined;
  readonly log: Logger;
}

/** The weights are not finite, so they are not published and the version before stays in use. */
export class VersionNotFinite extends Error {
  override readonly name = 'VersionNotFinite';

  constructor(version: number, why: string) {
    super(`policy version ${version} is not published: ${why}`);
  }
}

/**
 * Makes new weights available to the actors: saves them for sampling, opens one sampling session that
 * all actors share, downloads the adapter for actors that sample by themselves, and publishes the
 * manifest. A backend may lack either the session or the adapter; then every actor must sample the other way.
 */
export class Publisher {
  readonly #options: PublisherOptions;
  readonly #oneAtATime = pLimit(1);
  #newestVersion = -1;
  readonly #metrics: Record<string, number> = {};
  readonly #adapters: AdapterSource;
  readonly #undeleted: Backoff<number>; // versions whose weights the backend failed to delete
  readonly #published: PublishedVersions;

  constructor(options: PublisherOptions) {
    this.#options = options;
    this.#undeleted = new Backoff(options.now);
    const { broker, confirmLead, log } = options;
    this.#adapters = new AdapterSource(options);
    this.#published = new PublishedVersions({
      policy: broker.policy,
      restorations: () => broker.restorations,
      download: (manifest) => this.#download(manifest),
      confirmLead,
      log,
    });
  }

  /** The duration of each phase of the newest publication, by the names of `metrics.jsonl`. */
  get metrics(): Readonly<Record<string, number>> {
    return this.#metrics;
  }

  /** How actors get the adapters; known after the first publication. */
  get adapters(): AdapterKind {
    return this.#adapters.kind;
  }

  /** The newest version that an actor may have seen; set just before its manifest is published. */
  get newestVersion(): number {
    return this.#newestVersion;
  }

  /**
   * Publishes the weights that the operations called so far produce. The save is in the backend's queue
   * when this returns; the rest follows in order of the versions.
   *
   * @throws {VersionNotFinite} if a weight is NaN or infinite or, where the backend hands out no weights,
   *   the logprob of a token drawn with them is.
   */
  publish(version: number): Promise<void> {
    const { run, idle } = this.#options;
    const startedAt = performance.now();
    const saved = idle.during(run.saveWeightsForSampler(`policy-${padded(version)}`));
    this.#adapters.save(version);
    const canary = this.#options.canaries.request(version);
    const published = this.#oneAtATime(async () => {
      const samplerPath = await saved;
      this.#observe('save', startedAt);
      await this.#announce(version, samplerPath, canary);
      this.#observe('total', startedAt);
    });
    return markHandled(published);
  }

  /** Publishes versions again that NATS has lost and actors may still request. */
  restoreLost(): Promise<void> {
    return this.#oneAtATime(() => this.#published.restoreLost());
  }

  async #announce(
    version: number,
    samplerPath: string,
    requested: () => Promise<Canary | undefined>,
  ): Promise<void> {
    const { broker, maxStepsOffPolicy, rewinds, log } = this.#options;
    const [samplingSessionId, adapter] = await Promise.all([
      this.#open(samplerPath),
      this.#download({ version, samplerPath }),
    ]);
    if (samplingSessionId === undefined && adapter === undefined) {
      throw new UserError(
        'the backend neither samples nor hands out adapters that reach this machine, so no actor ' +
          'could use the trained weights; use a backend that does one of the two',
      );
    }
    await this.#requireFinite(version, samplingSessionId, adapter?.bytes);
    const askedAt = performance.now();
    const canary = await requested();
    this.#observe('canary', askedAt);
    const startedAt = performance.now();
    this.#newestVersion = version;
    this.#options.certificates.add({ version, canary });
    this.#options.versionAudit.add({ version, samplingSessionId, canary });
    const quarantined = this.#options.quarantined();
    const { restorations } = broker;
    const manifest = await broker.policy.publish(
      {
        ...(quarantined.length === 0 ? {} : { quarantined: [...quarantined] }),
        version,
        samplerPath,
        ...(samplingSessionId === undefined ? {} : { samplingSessionId }),
        ...(canary === undefined ? {} : { canary }),
        smallestUsefulVersion: smallestUsefulVersion(version, maxStepsOffPolicy, rewinds),
        consumedBelow: this.#options.consumedBelow(),
      },
      adapter,
    );
    this.#published.add(manifest, restorations);
    this.#observe('manifest', startedAt);
    newestPublished.set(version);
    log.info({ version }, 'published');
    await broker.events.emit({ v: 1, at: Date.now(), kind: 'version', version });
  }

  /** Checks the adapter; without one, draws a token as an actor would. */
  async #requireFinite(
    version: number,
    samplingSessionId: string | undefined,
    adapter: Uint8Array | undefined,
  ): Promise<void> {
    const startedAt = performance.now();
    if (adapter !== undefined) {
      await requireFinite(adapter).catch((caught: unknown) => {
        if (caught instanceof WeightsNotFinite) throw new VersionNotFinite(version, caught.message);
        if (!(caught instanceof PermanentError)) throw caught;
        throw new UserError(
          `the backend hands out weights of version ${version} that cannot be read: ${caught.message}`,
          { cause: caught },
        );
      });
    } else if (samplingSessionId !== undefined) {
      const sampler = this.#options.client.sampler(samplingSessionId);
      const ask = {
        prompt: Int32Array.of(0),
        numSamples: 1,
        maxTokens: 1,
        temperature: 1,
        seed: 0,
      };
      const [drawn] = await sampler.sample(ask);
      const broken = drawn?.logprobs.find((logprob) => !Number.isFinite(logprob));
      if (broken !== undefined) {
        throw new VersionNotFinite(version, `a token drawn with it has the logprob ${broken}`);
      }
    }
    this.#observe('check', startedAt);
  }

  async #open(samplerPath: string): Promise<string | undefined> {
    if (!this.#options.backendSamples) return undefined;
    const startedAt = performance.now();
    const id = await this.#options.client.createSamplingSession(samplerPath);
    this.#observe('session', startedAt);
    return id;
  }

  async #download({
    version,
    samplerPath,
  }: Pick<PolicyManifest, 'version' | 'samplerPath'>): Promise<PolicyAdapter | undefined> {
    const startedAt = performance.now();
    const found = await this.#adapters.fetch(version, samplerPath);
    if (found === undefined) return undefined;
    this.#observe('download', startedAt);
    return { bytes: found.adapter, rank: found.rank, alpha: found.alpha };
  }

  /**
   * Deletes versions that are not needed. Versions named by an actor's lease, an outstanding ticket or an
   * evaluation are kept, and so are those fresh enough to train on, which an actor may still load. Failed
   * deletions are retried with increasing pauses.
   *
   * @param inUse versions that tickets and evaluations name.
   */
  async retire(inUse: Iterable<number>): Promise<void> {
    const { broker, maxStepsOffPolicy, rewinds } = this.#options;
    const keep = new Set(inUse);
    for (const { version } of await broker.actors.list()) {
      if (version !== undefined) keep.add(version);
    }
    const newest = this.#newestVersion; // read after the wait, during which a version may be published
    const useful = smallestUsefulVersion(newest, maxStepsOffPolicy, rewinds);
    for (let version = useful; version <= newest; version++) keep.add(version);
    this.#published.keep(keep);

    for (const version of this.#undeleted.waiting()) keep.add(version);
    await broker.policy.retire(keep, (manifest) => this.#deleteWeights(manifest));
  }

  /** @returns false if the deletion is to be retried. */
  async #deleteWeights({ version, samplerPath }: PolicyManifest): Promise<boolean> {
    try {
      await this.#options.client.deleteCheckpoint(samplerPath);
      await this.#adapters.delete(version);
    } catch (caught) {
      const isFinal = caught instanceof PermanentError || caught instanceof UserError;
      if (!isFinal) this.#undeleted.failed(version);
      const reason = errorText(caught);
      this.#options.log.warn({ version, reason, isFinal }, 'sampling weights not deleted');
      return isFinal;
    }
    this.#undeleted.done(version);
    return true;
  }

  #observe(phase: string, startedAt: number): void {
    const seconds = (performance.now() - startedAt) / 1_000;
    Object.assign(this.#metrics, phaseStats.record(seconds, { phase }));
  }
}

function padded(version: number): string {
  return String(version).padStart(6, '0');
}

/** Decides when to retry failed operations: after a pause that doubles with each failure. */
export class Backoff<Key> {
  readonly #failures = new Map<Key, { readonly count: number; readonly dueAt: number }>();
  readonly #now: () => number;

  /** @param now in ms, of a clock that only rises. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  failed(key: Key): void {
    const count = (this.#failures.get(key)?.count ?? 0) + 1;
    const pauseMs = Math.min(firstPauseMs * 2 ** (count - 1), longestPauseMs);
    this.#failures.set(key, { count, dueAt: this.#now() + pauseMs });
  }

  done(key: Key): void {
    this.#failures.delete(key);
  }

  /** The keys whose pause is not over. */
  waiting(): Key[] {
    const now = this.#now();
    return [...this.#failures].flatMap(([key, { dueAt }]) => (dueAt > now ? [key] : []));
  }
}

const firstPauseMs = 5_000;
const longestPauseMs = 600_000;

import pLimit from 'p-limit';
import { Gauge } from 'prom-client';
import { StatTable } from '../report/stat-table.js';
import type { IdleClock } from '../step/idle-clock.js';
import { Backoff } from './backoff.js';
import type { VersionAudit } from '../audit/version-audit.js';
import type { Certificates } from '../audit/certificates.js';
import type { CanarySource } from './canary-source.js';
import { type AdapterSupply, type CheckedAdapter, VersionNotFinite } from './adapter-supply.js';
import { PublishedVersions } from './published-versions.js';
import { errorText, PermanentError, UserError } from '../../shared/base/errors.js';
import { markHandled } from '../../shared/base/task-scope.js';
import type { PolicyAdapter } from '../../shared/broker/policy-store.js';
import type { Broker } from '../../shared/broker/broker.js';
import { smallestUsefulVersion, type Rewind } from '../../shared/rl/staleness.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { AdapterKind } from '../../shared/tinker/capability-probe.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type { Canary } from '../../shared/wire/canary.js';
import { policyName } from '../../shared/wire/checkpoint-names.js';
import type { PolicyManifest, PublishedAdapter } from '../../shared/wire/policy-manifest.js';

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

interface PublisherOptions {
  readonly broker: Pick<Broker, 'policy' | 'events' | 'actors' | 'restorations'>;
  readonly client: Pick<TinkerClient, 'createSamplingSession' | 'deleteCheckpoint' | 'sampler'>;
  readonly run: Pick<TrainingRun, 'saveWeightsForSampler'>;
  readonly adapters: AdapterSupply;
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

/**
 * Makes new weights available to the actors: saves them for sampling, opens one sampling session that
 * all actors share, brings the adapter to actors that sample by themselves if there may be any, and publishes the
 * manifest. A backend may lack either the session or the adapter; then every actor must sample the other way.
 */
export class Publisher {
  readonly #options: PublisherOptions;
  readonly #oneAtATime = pLimit(1);
  #newestVersion = -1;
  readonly #metrics: Record<string, number> = {};
  readonly #undeleted: Backoff<number>; // versions whose weights the backend failed to delete
  readonly #published: PublishedVersions;
  readonly #unavailable = new Set<string>(); // adapters that are not asked for again

  constructor(options: PublisherOptions) {
    this.#options = options;
    this.#undeleted = new Backoff(options.now);
    const { broker, confirmLead, log } = options;
    this.#published = new PublishedVersions({
      policy: broker.policy,
      restorations: () => broker.restorations,
      download: (manifest) => this.#bring(manifest),
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
    return this.#options.adapters.kind;
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
    const saved = idle.during(run.saveWeightsForSampler(policyName(version)));
    this.#options.adapters.save(version);
    const canary = this.#options.canaries.request(version);
    const published = this.#oneAtATime(async () => {
      const samplerPath = await saved;
      this.#observe('save', startedAt);
      await this.#announce(version, samplerPath, canary);
      this.#observe('total', startedAt);
    });
    return markHandled(published);
  }

  /**
   * Publishes versions again: those that NATS has lost, those whose link is about to expire (with a new one), and those
   * whose adapter an actor has begun to need (with it).
   */
  maintain(): Promise<void> {
    return this.#oneAtATime(async () => {
      await this.#published.restoreLost();
      await this.#renewLinks();
      await this.#answerRequests();
    });
  }

  async #renewLinks(): Promise<void> {
    const { adapters } = this.#options;
    for (const manifest of this.#published.manifests) {
      const { version, adapter } = manifest;
      if (adapter === undefined || !adapters.isExpiring(manifest, Date.now())) continue;
      await this.#change('link', version, async () => {
        await this.#published.change(version, await adapters.renew(adapter));
      });
    }
  }

  async #answerRequests(): Promise<void> {
    const due = this.#published.manifests.filter(
      ({ version, adapterOnRequest }) =>
        adapterOnRequest === true && !this.#unavailable.has(`adapter ${version}`),
    );
    if (due.length === 0 || !(await this.#options.adapters.areNeeded())) return;
    for (const manifest of due) {
      const { version } = manifest;
      await this.#change('adapter', version, async () => {
        const placed = await this.#bring(manifest);
        if (placed !== undefined) await this.#published.change(version, placed);
        this.#options.log.info({ version }, 'adapter published, as an actor asked for it');
      });
    }
  }

  /** Logs what the backend refuses and does not ask for it again; actors that need nothing more go on. */
  async #change(
    what: 'link' | 'adapter',
    version: number,
    change: () => Promise<void>,
  ): Promise<void> {
    const key = `${what} ${version}`;
    if (this.#unavailable.has(key)) return;
    try {
      await change();
    } catch (caught) {
      const isRefused =
        caught instanceof PermanentError ||
        caught instanceof UserError ||
        caught instanceof VersionNotFinite;
      if (!isRefused) throw caught;
      this.#unavailable.add(key);
      const reason = errorText(caught);
      this.#options.log.error(
        { version, what, reason },
        'policy version cannot be published again, so actors that begin to need it wait for a newer one',
      );
    }
  }

  async #announce(
    version: number,
    samplerPath: string,
    requested: () => Promise<Canary | undefined>,
  ): Promise<void> {
    const { broker, adapters, maxStepsOffPolicy, rewinds, log } = this.#options;
    await adapters.find(version, samplerPath);
    const [samplingSessionId, adapter] = await Promise.all([
      this.#open(samplerPath),
      this.#fetchIfNeeded({ version, samplerPath }),
    ]);
    const isOnRequest = adapter === undefined && adapters.kind !== 'none';
    if (samplingSessionId === undefined && adapter === undefined) {
      throw new UserError(
        'the backend neither samples nor hands out adapters that reach this machine, so no actor ' +
          'could use the trained weights; use a backend that does one of the two, or mount its folder of checkpoints ' +
          'here and name it with --checkpoint-dir',
      );
    }
    if (adapter === undefined) await this.#requireFiniteToken(version, samplingSessionId);
    const placed = adapter && (await this.#place(version, adapter));
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
        ...(isOnRequest ? { adapterOnRequest: true as const } : {}),
        smallestUsefulVersion: smallestUsefulVersion(version, maxStepsOffPolicy, rewinds),
        consumedBelow: this.#options.consumedBelow(),
      },
      placed,
    );
    this.#published.add(manifest, restorations);
    this.#observe('manifest', startedAt);
    newestPublished.set(version);
    log.info({ version }, 'published');
    await broker.events.emit({ v: 1, at: Date.now(), kind: 'version', version });
  }

  /** Without an adapter to look at, draws a token as an actor would. */
  async #requireFiniteToken(version: number, samplingSessionId: string | undefined): Promise<void> {
    if (samplingSessionId === undefined) return;
    const startedAt = performance.now();
    const sampler = this.#options.client.sampler(samplingSessionId);
    const prompt = Int32Array.of(0);
    const ask = { prompt, numSamples: 1, maxTokens: 1, temperature: 1, seed: 0 };
    const [drawn] = await sampler.sample(ask);
    const broken = drawn?.logprobs.find((logprob) => !Number.isFinite(logprob));
    if (broken !== undefined) {
      throw new VersionNotFinite(version, `a token drawn with it has the logprob ${broken}`);
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

  async #fetchIfNeeded(
    manifest: Pick<PolicyManifest, 'version' | 'samplerPath'>,
  ): Promise<CheckedAdapter | undefined> {
    const { adapters, backendSamples } = this.#options;
    if (backendSamples && !(await adapters.areNeeded())) return undefined;
    const startedAt = performance.now();
    const fetched = await adapters.fetch(manifest);
    if (fetched !== undefined) this.#observe('download', startedAt);
    return fetched;
  }

  /** Where actors can fetch a version's adapter from now on; undefined if the backend hands out none. */
  async #bring(manifest: PolicyManifest): Promise<PolicyAdapter | PublishedAdapter | undefined> {
    const adapter = await this.#options.adapters.fetch(manifest);
    return adapter && (await this.#place(manifest.version, adapter));
  }

  async #place(
    version: number,
    adapter: CheckedAdapter,
  ): Promise<PolicyAdapter | PublishedAdapter> {
    const startedAt = performance.now();
    const placed = await this.#options.adapters.place(version, adapter);
    this.#observe('place', startedAt);
    return placed;
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
    const leases = await broker.actors.list();
    const newest = this.#newestVersion; // read after the wait, during which a version may be published
    const named = [...inUse, ...leases.flatMap(({ version }) => version ?? [])];
    // With a version above `newest` in `keep`, the store would retire the one being published as old.
    const keep = new Set(named.filter((version) => version <= newest));
    const useful = smallestUsefulVersion(newest, maxStepsOffPolicy, rewinds);
    for (let version = useful; version <= newest; version++) keep.add(version);
    this.#published.keep(keep);

    for (const version of this.#undeleted.waiting()) keep.add(version);
    await broker.policy.retire(keep, (manifest) => this.#deleteWeights(manifest));
  }

  /** @returns false if the deletion is to be retried. */
  async #deleteWeights(manifest: PolicyManifest): Promise<boolean> {
    const { version, samplerPath } = manifest;
    try {
      await this.#options.client.deleteCheckpoint(samplerPath);
      await this.#options.adapters.delete(manifest);
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

import { setTimeout as sleep } from 'node:timers/promises';
import { Gauge } from 'prom-client';
import type { PolicyStore } from '../shared/broker/policy-store.js';
import { Changes } from '../shared/base/changes.js';
import { errorText, PermanentError, UserError } from '../shared/base/errors.js';
import { TaskScope } from '../shared/base/task-scope.js';
import { NotServed } from '../shared/engine/adapter-server.js';
import { AdapterAwaited } from '../shared/run/adapters/adapter-loader.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import type { ActorLease } from '../shared/wire/actor-lease.js';
import { isSamePolicy, type PolicyManifest, supersedes } from '../shared/wire/policy-manifest.js';
import { AdoptionTimes } from './adoption-times.js';
import type { CanaryCheck } from './canary-check.js';
import { type Hold, HeldVersions } from './held-versions.js';
import { CanaryMissing, CanaryNotReproduced, countRefusal, refusalOf } from './sampler/refusal.js';
import type { Sampler } from './sampler/sampler.js';

interface PolicyFollowerOptions {
  readonly store: Pick<PolicyStore, 'watch' | 'at'>;
  readonly sampler: Pick<Sampler, 'load' | 'admit' | 'drop' | 'trouble' | 'ready'> &
    Partial<Pick<Sampler, 'maxVersions'>>;
  readonly canaries: Pick<CanaryCheck, 'require'>;
  readonly requireCanary?: boolean; // refuse versions without one
  /** Called with every version as soon as it is published, long before it is loaded. */
  readonly onPublished?: (manifest: PolicyManifest) => void;
  readonly log: Logger;
  readonly retryDelayMs?: number; // between attempts to load a version
  readonly refusedDelayMs?: number; // the same for one whose weights were damaged
}

/** Reached after about 15 s of retries. */
const failuresUntilStuck = 5;
const longestRetryDelayMs = 30_000;
const usualRetryDelayMs = 1_000;

const policyVersion = new Gauge({
  name: 'rl_actor_policy_version',
  help: 'The newest policy version that this actor is ready to sample with.',
});

/**
 * Keeps the newest published policy loaded in the sampler, and an older one while a ticket is pinned
 * to it. Versions that a newer one replaces before they are loaded are skipped.
 */
export class PolicyFollower {
  readonly #held: HeldVersions;
  readonly #changes = new Changes(); // notifies of changes of newestLoaded, newestPublished, refused and failures
  readonly #times = new AdoptionTimes();
  #newestLoaded: PolicyManifest | undefined; // loaded
  #newestPublished: PolicyManifest | undefined; // published
  #whyNotLoaded: string | undefined;
  #awaitsAdapter = false;
  #mistrust = new AbortController(); // aborts while the sampler does not reproduce the newest canary
  #refused: ActorLease['refused'];
  #failures = 0; // attempts in a row that could not load the newest version

  constructor(private readonly options: PolicyFollowerOptions) {
    const { sampler } = options;
    this.#held = new HeldVersions({
      sampler,
      load: (manifest, signal) => this.#load(manifest, signal),
      newest: () => this.version,
    });
  }

  /** The newest version that is ready, or undefined before the first. */
  get version(): number | undefined {
    return this.#newestLoaded?.version;
  }

  /** The reason why the last version to load is not in use; undefined if it is. */
  get whyNotLoaded(): string | undefined {
    return this.#whyNotLoaded;
  }

  /** The newest version, if the sampler does not reproduce its canary. */
  get refused(): ActorLease['refused'] {
    return this.#refused;
  }

  /** Whether it waits for an adapter that the learner publishes once it sees this actor's lease. */
  get awaitsAdapter(): boolean {
    return this.#awaitsAdapter;
  }

  /** Whether the newest version could not be loaded several times in a row. */
  get isStuck(): boolean {
    return this.#failures >= failuresUntilStuck;
  }

  /** Why no ticket is sampled here now; undefined if one may be. */
  get trouble(): string | undefined {
    const isUsable = this.#newestLoaded !== undefined && this.#refused === undefined;
    if (isUsable && !this.isStuck) return undefined;
    return this.#whyNotLoaded ?? 'waiting for the first policy version';
  }

  /** Waits for the first version, and while newer ones cannot be loaded: tickets would only wait here. */
  async loadable(signal: AbortSignal): Promise<void> {
    while (this.#newestLoaded === undefined || this.isStuck) await this.#change(signal);
  }

  /**
   * Waits until the sampler reproduces the newest canary, or `signal` aborts.
   *
   * @returns a signal that aborts when the sampler next fails to reproduce one.
   */
  async trusted(signal: AbortSignal): Promise<AbortSignal> {
    while (this.#refused !== undefined && !signal.aborted) await this.#changes.next(signal);
    return this.#mistrust.signal;
  }

  /** Records that a token is drawn with this version; the first one measures the delay since publication. */
  onDraw(version: number): void {
    const manifest = this.#held.manifestOf(version);
    if (manifest !== undefined) this.#times.drawn(manifest);
  }

  /** The newest version that has drawn a token here, and the seconds from its publication to that token. */
  get firstToken(): AdoptionTimes['firstToken'] {
    return this.#times.firstToken;
  }

  /** The oldest version that must not be retired yet, or undefined before the first. */
  get oldestInUse(): number | undefined {
    const versions = this.#held.inUse;
    if (this.#newestLoaded !== undefined) versions.push(this.#newestLoaded.version);
    return versions.length === 0 ? undefined : Math.min(...versions);
  }

  /**
   * Follows the published versions until `signal` aborts. A version that cannot be loaded is retried, with a log line
   * each time, until a newer one replaces it. Meanwhile the last good version stays in use:
   *
   * - Damaged or non-finite weights and a missing canary stop only the tickets that ask for that version.
   * - After five failures in a row that may pass, such as a lost connection, no ticket is leased, and those that wait
   *   for a newer version go back.
   * - If the sampler does not reproduce the canary, the version is loaded again after a delay, and `trusted` waits
   *   meanwhile.
   *
   * @throws {UserError} if the sampler can never use what is published.
   */
  async follow(signal: AbortSignal): Promise<void> {
    await TaskScope.run(signal, [
      (ending) => this.#watch(ending),
      (ending) => this.#loadWanted(ending),
    ]);
  }

  /**
   * Waits until the newest version that is ready is at least `version`.
   *
   * @returns it.
   * @throws {Error} when newer ones cannot be loaded here: another actor may do better.
   */
  async readyFrom(version: number, signal: AbortSignal): Promise<PolicyManifest> {
    while (this.#newestLoaded === undefined || this.#newestLoaded.version < version) {
      if (this.isStuck) throw new Error(this.#whyNotLoaded);
      await this.#change(signal);
    }
    return this.#newestLoaded;
  }

  /** Holds the newest version, once it is at least `version`. */
  async holdAtLeast(version: number, signal: AbortSignal): Promise<Hold> {
    return this.#held.hold(await this.readyFrom(version, signal), signal);
  }

  /**
   * Holds exactly `version`, once it is published.
   *
   * @throws {PermanentError} if it was retired.
   * @throws {Error} if its canary is not reproduced here, or missing and required; another actor may do better.
   */
  async holdExactly(version: number, signal: AbortSignal): Promise<Hold> {
    let newestBefore: number | undefined; // that could sample at the first failure
    for (let lost = 0; ;) {
      const published = this.#newestPublished?.version ?? -1;
      const manifest = this.#held.manifestOf(version) ?? (await this.options.store.at(version));
      if (manifest !== undefined) {
        try {
          const hold = await this.#holdPinned(manifest, signal);
          if (hold !== undefined) return hold;
        } catch (err) {
          // The sampler may serve it later, or from a new session: a failure that passes costs the ticket no try. A newer
          // version that was loaded since the first failure shows that it serves others.
          if (!(err instanceof NotServed)) throw err;
          const newest = Math.max(version, this.version ?? -1);
          newestBefore ??= newest;
          if (!err.isBusy && newest > newestBefore) throw err.cause;
          if (err.maxAttempts !== undefined && ++lost >= err.maxAttempts) throw err.cause;
          this.options.log.warn({ err: err.cause, version }, 'policy not loaded, retrying');
        }
        // Only the newest version is watched.
        await sleep(this.options.retryDelayMs ?? usualRetryDelayMs, undefined, { signal });
        continue;
      }
      if (published >= version) {
        throw new PermanentError(
          `policy version ${version} was retired; the newest is ${published}`,
        );
      }
      if ((this.#newestPublished?.version ?? -1) === published) await this.#change(signal);
    }
  }

  /** @returns undefined if its adapter is not published yet. */
  async #holdPinned(manifest: PolicyManifest, signal: AbortSignal): Promise<Hold | undefined> {
    try {
      return await this.#held.hold(manifest, signal);
    } catch (caught) {
      if (caught instanceof AdapterAwaited) {
        this.#await(caught);
        return undefined;
      }
      if (caught instanceof CanaryNotReproduced || caught instanceof CanaryMissing) {
        throw new Error(caught.message, { cause: caught });
      }
      throw caught;
    }
  }

  async #watch(signal: AbortSignal): Promise<void> {
    for await (const manifest of this.options.store.watch(signal)) {
      this.#newestPublished = manifest;
      this.options.onPublished?.(manifest);
      this.#changes.notify();
    }
  }

  async #loadWanted(signal: AbortSignal): Promise<void> {
    const { log, retryDelayMs = usualRetryDelayMs, refusedDelayMs = 30_000 } = this.options;
    for (;;) {
      signal.throwIfAborted();
      const manifest = this.#newestPublished;
      if (manifest === undefined || !supersedes(manifest, this.#newestLoaded)) {
        await this.#change(signal);
        continue;
      }
      try {
        await this.#adopt(manifest, signal);
      } catch (err) {
        if (err instanceof UserError || signal.aborted) throw err;
        if (err instanceof AdapterAwaited) {
          this.#await(err);
          if (this.#newestPublished === manifest) await this.#change(signal);
          continue;
        }
        if (err instanceof PermanentError) {
          if (err instanceof CanaryNotReproduced) this.#stop(err);
          this.#failures = 0; // only failures that may pass, in a row, stop the tickets of older versions
          this.#changes.notify();
          // Damage may have happened in transit, so retry; weights that are not finite are cheap to detect again.
          if (this.#newestPublished !== manifest) continue;
          await this.#pause(refusedDelayMs, signal);
          continue;
        }
        this.#failures += 1;
        countRefusal(err);
        this.#whyNotLoaded = `policy version ${manifest.version} is not loaded: ${errorText(err)}`;
        this.#changes.notify(); // tickets that wait for it may have to go back
        log.warn({ err, version: manifest.version }, 'policy not loaded, retrying');
        const delayMs = Math.min(retryDelayMs * 2 ** (this.#failures - 1), longestRetryDelayMs);
        if (this.#newestPublished !== manifest) continue;
        await this.#pause(delayMs, signal);
      }
    }
  }

  /** Waits for a change or `delayMs`, but not longer than until a sampler that is out of use is back. */
  async #pause(delayMs: number, signal: AbortSignal): Promise<void> {
    const { sampler } = this.options;
    await using waiting = new TaskScope(signal);
    const { signal: ending } = waiting;
    const ends = [this.#change(ending), sleep(delayMs, undefined, { signal: ending })];
    if (sampler.trouble !== undefined) ends.push(sampler.ready(ending));
    await Promise.race(ends);
  }

  async #adopt(manifest: PolicyManifest, signal: AbortSignal): Promise<void> {
    using hold = await this.#held.hold(manifest, signal);
    if (supersedes(manifest, hold.manifest)) {
      // Where an adapter is does not matter once it is loaded.
      if (!isSamePolicy(manifest, hold.manifest)) {
        this.#held.makeRoom(); // both are loaded for a moment
        await this.#load(manifest, signal);
      }
      this.#held.replace(manifest);
    }
    this.#newestLoaded = manifest;
    this.#failures = 0;
    this.#whyNotLoaded = undefined;
    this.#awaitsAdapter = false;
    this.#refused = undefined;
    if (this.#mistrust.signal.aborted) this.#mistrust = new AbortController();
    policyVersion.set(manifest.version);
    const seconds = this.#times.adopted(manifest);
    this.options.log.info({ version: manifest.version, seconds }, 'policy adopted');
    this.#changes.notify();
  }

  #await({ message }: AdapterAwaited): void {
    if (!this.#awaitsAdapter) this.options.log.info({ why: message }, 'waiting for an adapter');
    this.#awaitsAdapter = true;
    this.#whyNotLoaded = message;
  }

  /** Until a version passes, no ticket is sampled: those of other versions would be by the same sampler. */
  #stop({ finding, message }: CanaryNotReproduced): void {
    this.#refused = refusalOf(finding, this.#refused);
    this.#mistrust.abort(new Error(message));
    this.#changes.notify();
  }

  async #load(manifest: PolicyManifest, signal: AbortSignal): Promise<void> {
    try {
      const { sampler, canaries, requireCanary = false } = this.options;
      if (requireCanary && manifest.canary === undefined) throw new CanaryMissing();
      await sampler.load(manifest, (...what) => canaries.require(manifest, ...what), signal);
      sampler.admit(manifest.version);
    } catch (err) {
      if (!(err instanceof PermanentError)) throw err;
      const reason = countRefusal(err);
      const { version } = manifest;
      this.options.log.error(
        { version, reason, why: errorText(err), inUse: this.version },
        'policy version refused, last good version stays in use',
      );
      this.#whyNotLoaded = `policy version ${version} is refused: ${errorText(err)}`;
      throw err;
    }
  }

  async #change(signal: AbortSignal): Promise<void> {
    await this.#changes.next(signal);
    signal.throwIfAborted();
  }
}

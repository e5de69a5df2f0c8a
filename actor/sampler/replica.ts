import { randomUUID } from 'node:crypto';
import { errorText, UserError } from '../../shared/base/errors.js';
import { markHandled, TaskScope, unlessAborted } from '../../shared/base/task-scope.js';
import {
  AdapterLost,
  type AdapterServer,
  type EngineNeed,
  isFault,
  type NamedAdapter,
  requireOneEngine,
  unfit,
} from '../../shared/engine/adapter-server.js';
import { EngineDown } from '../../shared/engine/engine-http.js';
import type { GroupRequest } from '../../shared/model/rollout-draft.js';
import type { SampledSequence } from '../../shared/tinker/types.js';
import type { Draw, ProveServer } from './engine.js';
import { EngineWatch } from './engine-watch.js';
import type { MetricsReading } from './limit-control.js';
import { SlotWatch } from './slot-watch.js';
import { Standing, type StandingOptions } from './standing.js';

/** How often a server is asked for its health, and how long it may take to answer, in ms. */
export interface HealthChecks {
  readonly everyMs: number;
  readonly limitMs: number;
  readonly refusedMs?: number; // until one that was refused is asked again
}

/** An adapter, with what a server must pass before it samples with it. */
export interface ProvenAdapter extends NamedAdapter {
  readonly prove: ProveServer;
}

interface ReplicaOptions extends Omit<StandingOptions, 'url' | 'refusedMs'> {
  readonly server: AdapterServer;
  readonly release: string | undefined;
  readonly capacity: number | undefined; // adapters that one batch may use, if the server says so
  readonly slots: number; // adapters that this actor may have loaded
  readonly maxContext: number | undefined; // of the run's engines: what this actor may ask for
  readonly need: EngineNeed;
  readonly checks: HealthChecks;
  readonly stallSeconds: number | undefined;
  /** The adapters of now. */
  readonly wanted: () => readonly ProvenAdapter[];
  /** Whether an adapter was loaded by this process. */
  readonly isOwn: (name: string) => boolean;
  readonly closing: AbortSignal;
}

/** A busy server may miss one check. */
const maxMissedChecks = 2;
const proofMs = 120_000; // one token; the first call may compile kernels

/**
 * One server of several that are alike: whether it is used, and with which adapters. It samples with an adapter only after it has
 * reproduced the canary of its version, and must do so again whenever it may have lost it.
 */
export class Replica {
  /** The groups that sample here now. */
  placed = 0;
  #release: string | undefined;
  #missedChecks = 0;
  #checkedAt: number;
  #calls = 0; // that sample for groups or proofs
  #metrics: MetricsReading | undefined;
  readonly #standing: Standing;
  readonly #watch: EngineWatch;
  readonly #slots: SlotWatch;
  readonly #bringing = new Map<string, Promise<void>>();

  constructor(private readonly options: ReplicaOptions) {
    const { server, checks } = options;
    this.#standing = new Standing({ ...options, url: server.url, refusedMs: checks.refusedMs });
    this.#release = options.release;
    this.#watch = new EngineWatch(options.stallSeconds);
    this.#slots = new SlotWatch(options.capacity, options.isOwn);
    this.#checkedAt = options.now();
  }

  get server(): AdapterServer {
    return this.options.server;
  }

  get release(): string | undefined {
    return this.#release;
  }

  get isUp(): boolean {
    return this.#standing.isUp;
  }

  /** Why the server is not used; undefined if it is. */
  get reason(): Standing['reason'] {
    return this.#standing.reason;
  }

  /** The version whose canary it did not reproduce, if it is not used for that reason. */
  get refused(): Standing['refused'] {
    return this.#standing.refused;
  }

  /** What it said of itself at the last check. */
  get metrics(): MetricsReading | undefined {
    return this.#metrics;
  }

  /** The number of adapters that it may sample with. */
  get provenAdapters(): number {
    return this.#standing.proven.size;
  }

  /** Loads an adapter and has it proven, unless it is; callers that ask at once share the work. */
  async bring(adapter: ProvenAdapter, signal: AbortSignal): Promise<void> {
    if (this.#standing.proven.has(adapter.name)) return;
    const work =
      this.#bringing.get(adapter.name) ??
      markHandled(this.#loadAndProve(adapter).finally(() => this.#bringing.delete(adapter.name)));
    this.#bringing.set(adapter.name, work);
    await unlessAborted(work, signal);
  }

  /** Has an adapter proven again before it is used. */
  unprove(name: string): void {
    this.#standing.proven.delete(name);
  }

  /** Unloads an adapter if the server is up; a restarted one has lost it anyway. A load whose caller has given it up ends first. */
  async unload(name: string, signal: AbortSignal): Promise<void> {
    try {
      const loading = this.#bringing.get(name)?.catch(() => undefined);
      if (loading !== undefined) await unlessAborted(loading, signal);
      this.#standing.proven.delete(name);
      if (!this.isUp) return;
      await this.server.unload(name, signal);
    } catch (error) {
      const { url } = this.server;
      this.options.log.warn(
        { url, adapter: name, reason: errorText(error) },
        'adapter not unloaded',
      );
    }
  }

  /** Samples with an adapter, which is loaded and proven again if the server has lost it. */
  async generate(
    adapter: ProvenAdapter,
    request: GroupRequest,
    limitMs: number,
    signal: AbortSignal,
  ): Promise<SampledSequence[]> {
    await using call = new TaskScope(signal, this.#standing.trust);
    this.#calls++;
    const id = randomUUID();
    const ask = async () => {
      call.signal.throwIfAborted();
      if (!this.isUp) throw new EngineDown(`${this.server.url} is out of use: ${this.reason}`);
      await this.#bringOrRefuse(adapter, call.signal);
      const given = { id, adapter: adapter.name, request, limitMs };
      const sequences = await this.#noticeDown(
        this.server.generate(given, call.signal),
        call.signal,
      );
      await this.#requireSlots(call.signal);
      return sequences;
    };
    try {
      return await ask().catch(async (error: unknown) => {
        if (!(error instanceof AdapterLost)) throw error;
        const { url } = this.server;
        this.options.log.warn({ url, adapter: adapter.name }, 'engine has lost an adapter');
        this.#standing.proven.clear(); // it was probably restarted
        return await ask();
      });
    } catch (error) {
      const isGivenUp = call.signal.aborted || error instanceof EngineDown; // it may still be drawing
      if (isGivenUp) void this.server.abort({ id, request }).catch(() => undefined);
      throw error;
    } finally {
      this.#calls--;
    }
  }

  /** Takes the server out of use because it does not load a version or reproduce its canary; it is asked again after a while. */
  refuse(error: unknown): void {
    this.#standing.refuse(error);
  }

  /**
   * Checks the server. One that does not answer, draws no tokens or was restarted is taken out of use, and its calls end at once;
   * one that answers again is used once it has all adapters and has reproduced their canaries.
   *
   * @throws {UserError} if it can no longer serve the run.
   */
  async check(signal: AbortSignal): Promise<void> {
    const { checks, now } = this.options;
    const seconds = Math.min(now() - this.#checkedAt, 2 * checks.everyMs + checks.limitMs) / 1_000;
    this.#checkedAt = now();
    try {
      await this.server.checkHealth(checks.limitMs, signal);
      this.#missedChecks = 0;
      const shown = await this.#readMetrics(signal);
      this.#metrics = shown === 'late' ? undefined : shown;
      if (this.isUp) {
        const found = this.#watch.look(shown, this.#calls > 0, seconds);
        if (found !== undefined) this.#standing.distrust(found.outage, found.reason);
      }
      if (!this.isUp && !this.#standing.isResting) await this.#readmit(signal);
    } catch (error) {
      if (signal.aborted || error instanceof UserError) throw error;
      if (!this.isUp && isFault(error)) this.refuse(error);
      else if (!this.isUp) this.#standing.stayDown(errorText(error));
      else if (++this.#missedChecks >= maxMissedChecks)
        this.#standing.distrust('down', errorText(error));
    }
  }

  /** @returns 'late' if they did not come in time; undefined if the server shows none. */
  async #readMetrics(signal: AbortSignal): Promise<MetricsReading | 'late' | undefined> {
    try {
      const metrics = await this.server.metrics(this.options.checks.limitMs, signal);
      return metrics && { ...metrics, readAtMs: this.options.now() };
    } catch (error) {
      if (error instanceof EngineDown) return 'late'; // its health is another question
      throw error;
    }
  }

  /** Uses the server again, as if it were a new one. */
  async #readmit(signal: AbortSignal): Promise<void> {
    const { need, wanted, slots, maxContext = 0 } = this.options;
    const { url, product } = this.server;
    const outages = this.#standing.outages;
    const { version, maxContext: context = Infinity } = await this.server.probe(need, signal);
    if (context < maxContext) {
      throw unfit(`${product} at ${url}`, [
        `it now has room for ${context} tokens in a sequence, and this actor asks for up to ${maxContext}: start it as before, or start the actor again`,
      ]);
    }
    requireOneEngine(this.server, this.#metrics);
    await this.#unloadOthers(signal);
    const adapters = wanted();
    for (const adapter of adapters) {
      await this.#whileWanted(adapter, () => this.server.load(adapter, signal));
    }
    this.#slots.restart(await this.server.adapters(signal));
    this.#standing.proven.clear();
    await using proving = new TaskScope(signal); // a draw that is left over must not say later that the server is down
    for (const adapter of adapters) {
      await this.#whileWanted(adapter, () => this.#prove(adapter, outages, proving.signal));
    }
    const told = await this.server.adapterSlots(signal);
    if (told !== undefined && told < slots) {
      throw unfit(`${product} at ${url}`, [
        `it now has room for ${told} adapters in a batch, and this actor uses ${slots}: start it as before, or start the actor again`,
      ]);
    }
    await this.#unloadOthers(signal); // those that were dropped meanwhile
    this.#release = version;
    this.#watch.restart(this.#metrics);
    this.#standing.readmit(version);
  }

  /**
   * Does work on an adapter, unless it was dropped. If it is dropped meanwhile, a failure does not matter: its files
   * are gone.
   */
  async #whileWanted(adapter: ProvenAdapter, work: () => Promise<void>): Promise<void> {
    const isWanted = () => this.options.wanted().includes(adapter);
    if (!isWanted()) return;
    try {
      await work();
    } catch (error) {
      if (isWanted()) throw error;
    }
  }

  /** Unloads adapters of this process that are no longer wanted: the server had not ended, only hung. */
  async #unloadOthers(signal: AbortSignal): Promise<void> {
    const { isOwn, wanted } = this.options;
    const names = new Set(wanted().map(({ name }) => name));
    for (const name of await this.server.adapters(signal)) {
      if (isOwn(name) && !names.has(name)) await this.server.unload(name, signal);
    }
  }

  async #loadAndProve(adapter: ProvenAdapter): Promise<void> {
    await using scope = new TaskScope(this.options.closing, this.#standing.trust);
    const outages = this.#standing.outages;
    await this.#noticeDown(this.server.load(adapter, scope.signal), scope.signal);
    await this.#requireSlots(scope.signal);
    await this.#prove(adapter, outages, scope.signal);
  }

  /** @param outages before the adapter was loaded. */
  async #prove(adapter: ProvenAdapter, outages: number, signal: AbortSignal): Promise<void> {
    const draw: Draw = (request, limitMs, ending) => {
      // A long queue is no outage: while the server counts tokens, the watch knows that it works.
      const isWatched = this.isUp && this.#metrics?.generatedTokens !== undefined;
      const given = { id: randomUUID(), adapter: adapter.name, request };
      const limited = { ...given, limitMs: isWatched ? limitMs : Math.min(limitMs, proofMs) };
      return this.#noticeDown(this.server.generate(limited, ending), ending);
    };
    this.#calls++;
    try {
      await adapter.prove(draw, signal, this.server.url);
    } finally {
      this.#calls--;
    }
    if (outages !== this.#standing.outages) {
      throw new EngineDown(`${this.server.url} was out of use while it was proven`);
    }
    this.#standing.proven.add(adapter.name);
  }

  /** A server that does not load a version or reproduce its canary is at fault, not the ticket. */
  async #bringOrRefuse(adapter: ProvenAdapter, signal: AbortSignal): Promise<void> {
    try {
      await this.bring(adapter, signal);
    } catch (error) {
      if (signal.aborted || this.options.closing.aborted || !isFault(error)) throw error;
      this.refuse(error);
      throw new EngineDown(errorText(error), { cause: error });
    }
  }

  /** Asks after a load or a call whether the server had a slot for every adapter. */
  async #requireSlots(signal: AbortSignal): Promise<void> {
    if (!this.#slots.isKnown) return;
    const names = await this.#noticeDown(this.server.adapters(signal), signal);
    signal.throwIfAborted();
    const reason = this.#slots.look(names);
    if (reason === undefined) return;
    this.#standing.distrust('evicted', reason);
    throw new EngineDown(`${this.server.url}: ${reason}`);
  }

  /** @param signal that the work has: one that it ends says nothing new of the server. */
  async #noticeDown<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
    try {
      return await work;
    } catch (error) {
      if (error instanceof EngineDown && !signal.aborted)
        this.#standing.lose('down', error.message);
      throw error;
    }
  }
}

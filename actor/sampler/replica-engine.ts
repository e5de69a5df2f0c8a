import { setTimeout as sleep } from 'node:timers/promises';
import { Changes } from '../../shared/base/changes.js';
import { PermanentError, UserError } from '../../shared/base/errors.js';
import { TaskScope } from '../../shared/base/task-scope.js';
import {
  type AdapterServer,
  type EngineNeed,
  isFault,
} from '../../shared/engine/adapter-server.js';
import { EngineDown } from '../../shared/engine/engine-http.js';
import { requireFinite } from '../../shared/model/lora.js';
import type { GroupRequest } from '../../shared/model/rollout-draft.js';
import { type AdapterLoader, requireAdapter } from '../../shared/run/adapters/adapter-loader.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { SampledSequence } from '../../shared/tinker/types.js';
import type { EngineLease } from '../../shared/wire/actor-lease.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { type AdapterFolder, touchEveryMs } from './adapter-folder.js';
import type { Engine, EnginePlace, ProveServer } from './engine.js';
import { leaseOfReplica, reportEngines, reportOutage, reportRefusal } from './engine-report.js';
import type { MetricsReading } from './limit-control.js';
import { type HealthChecks, type ProvenAdapter, Replica } from './replica.js';

export interface ReplicaEngineOptions {
  readonly servers: readonly CheckedServer[]; // of the same kind and model
  readonly folder: AdapterFolder;
  readonly run: string;
  readonly actor: string;
  readonly process: string; // distinguishes the processes that the actor's name has had
  readonly need: EngineNeed;
  readonly maxContext: number | undefined;
  readonly slots: number; // adapters that may be loaded at once, at each server
  readonly adapters: Pick<AdapterLoader, 'fetchAdapter'>;
  readonly log: Logger;
  readonly checks?: HealthChecks | undefined; // of the servers' health
  readonly stallSeconds?: number | undefined; // without a token, until a server counts as hung; undefined: from its pace
  /** A steady clock, in ms. */
  readonly now?: (() => number) | undefined;
}

/** A server, and what it said when it was checked. */
interface CheckedServer {
  readonly server: AdapterServer;
  readonly release: string | undefined;
  readonly capacity: number | undefined; // adapters that one batch may use
}

/** An adapter at the servers, as long as a version or a call uses it. */
interface LoadedAdapter extends ProvenAdapter {
  prove: ProveServer;
  calls: number;
  isDropped: boolean;
}

const usualChecks: HealthChecks = { everyMs: 2_000, limitMs: 5_000 };

/**
 * Servers of one model that sample with adapters from files, used as one engine. Each version is an adapter under a
 * name of its own, version 0 too, though its adapter changes nothing: then a request that names a version can only be
 * answered with it or refused, never by the bare model.
 */
export class ReplicaEngine implements Engine {
  readonly kind: AdapterServer['kind'];
  readonly #replicas: readonly Replica[];
  readonly #adapters = new Map<string, LoadedAdapter>(); // by name
  readonly #nameOf = new Map<number, string>(); // by version
  readonly #changes = new Changes();
  readonly #checkEveryMs: number;
  readonly #closing = new AbortController();

  constructor(private readonly options: ReplicaEngineOptions) {
    const { servers, need, slots, maxContext, checks = usualChecks, stallSeconds, log } = options;
    const { run, actor, process, now = () => performance.now() } = options;
    this.#checkEveryMs = checks.everyMs;
    this.kind = servers[0]!.server.kind;
    const isOwn = (name: string) => isOfActor(name, run, actor) && name.endsWith(`.${process}`);
    const wanted = () =>
      [...this.#adapters.values()].filter(({ isDropped, folder }) => !isDropped && folder !== '');
    this.#replicas = servers.map(
      (checked) =>
        new Replica({
          ...{ ...checked, slots, maxContext, need, checks, stallSeconds, wanted, isOwn, log, now },
          closing: this.#closing.signal,
          onChange: (outage) => {
            reportOutage(checked.server.url, outage);
            this.#report();
            this.#changes.notify();
          },
          onRefusal: (outage) => {
            reportRefusal(checked.server.url, outage);
          },
        }),
    );
    this.#report();
  }

  get description(): string {
    const releases = this.#replicas.map(({ release }) => release ?? 'of an unknown release');
    return `${this.kind} ${[...new Set(releases)].join(', ')}`;
  }

  get servers(): EngineLease[] {
    return this.#replicas.map((replica) => leaseOfReplica(replica, this.options.slots));
  }

  readonly scoresPrompts = false; // the most probable tokens are shown

  get mostProbable(): number {
    return Math.min(...this.#replicas.map(({ server }) => server.mostProbable));
  }

  get maxContext(): number | undefined {
    return this.options.maxContext;
  }

  get maxVersions(): number {
    return this.options.slots;
  }

  get trouble(): string | undefined {
    if (this.#replicas.some(({ isUp }) => isUp)) return undefined;
    return `no engine answers: ${this.#replicas.map(({ reason }) => reason).join('; ')}`;
  }

  get metrics(): MetricsReading[] {
    return this.#replicas.flatMap(({ isUp, metrics }) => (isUp ? (metrics ?? []) : []));
  }

  async load(manifest: PolicyManifest, prove: ProveServer, signal: AbortSignal): Promise<void> {
    if (this.trouble !== undefined) throw new EngineDown(this.trouble); // before it waits for a slot
    const { version } = manifest;
    const { rank, alpha, sha256 } = requireAdapter(manifest);
    const { run, actor, process, adapters, folder } = this.options;
    const name = adapterName({ run, actor, process, version, sha256 });
    const known = this.#adapters.get(name);
    if (known?.isDropped === false) {
      known.prove = prove; // published again, with another sampling session, and perhaps another canary
      for (const replica of this.#replicas) replica.unprove(name);
      await this.#bringEverywhere(known, signal);
      return;
    }
    const safetensors = await adapters.fetchAdapter(manifest, signal);
    await requireFinite(safetensors);
    const loaded = { name, folder: '', rank, prove, calls: 0, isDropped: false }; // not written yet
    await this.#takeSlot(loaded, signal);
    try {
      loaded.folder = await folder.write(name, { safetensors, rank, alpha });
      await this.#bringEverywhere(loaded, signal);
    } catch (error) {
      loaded.isDropped = true; // another load of this version starts from the beginning
      void this.#free(loaded); // a server may still be loading it, which the caller need not wait for
      throw error;
    }
    const before = this.#nameOf.get(version);
    this.#nameOf.set(version, name);
    if (before !== undefined) this.#drop(before); // the learner was restored and trained the version again
    this.#report();
  }

  unload(version: number): void {
    const name = this.#nameOf.get(version);
    this.#nameOf.delete(version);
    if (name !== undefined) this.#drop(name);
  }

  place(): EnginePlace {
    const [replica] = this.#replicas.filter(({ isUp }) => isUp).sort((a, b) => a.placed - b.placed);
    if (replica === undefined) throw new Error(this.trouble);
    replica.placed++;
    return {
      generate: (version, request, limitMs, signal) =>
        this.#generate(replica, version, request, limitMs, signal),
      [Symbol.dispose]: () => {
        replica.placed--;
      },
    };
  }

  async ready(signal: AbortSignal): Promise<void> {
    while (this.trouble !== undefined) {
      await this.#changes.next(signal);
      signal.throwIfAborted();
    }
  }

  async guard(signal: AbortSignal): Promise<void> {
    const check = (replica: Replica) => async (ending: AbortSignal) => {
      for (;;) {
        await sleep(this.#checkEveryMs, undefined, { signal: ending });
        await replica.check(ending).catch((error: unknown) => {
          if (ending.aborted || this.#replicas.length === 1) throw error;
          replica.refuse(error); // it cannot serve the run as it is now, but others may
        });
        this.#report();
      }
    };
    await TaskScope.run(signal, [
      ...this.#replicas.map(check), // each for itself: one that comes back is busy for a while
      async (ending) => {
        for (;;) {
          await sleep(touchEveryMs, undefined, { signal: ending });
          // It only keeps others from removing the folder; one that is gone for good shows when a version is written.
          await this.options.folder.touch().catch((err: unknown) => {
            this.options.log.warn({ err }, 'folder of adapters not marked as in use');
          });
        }
      },
    ]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort();
    const names = [...this.#adapters.keys()];
    const limit = AbortSignal.timeout(closeMs);
    await Promise.all(
      this.#replicas.flatMap((replica) => names.map((name) => replica.unload(name, limit))),
    );
    await this.options.folder[Symbol.asyncDispose]();
  }

  async #generate(
    replica: Replica,
    version: number,
    request: GroupRequest,
    limitMs: number,
    signal: AbortSignal,
  ): Promise<SampledSequence[]> {
    const adapter = this.#adapters.get(this.#nameOf.get(version) ?? '');
    if (adapter === undefined) throw new Error(`policy version ${version} is not loaded`);
    adapter.calls++;
    try {
      return await replica.generate(adapter, request, limitMs, signal);
    } finally {
      adapter.calls--;
      if (adapter.isDropped && adapter.calls === 0) void this.#free(adapter);
    }
  }

  /**
   * Loads an adapter at every server that is up, and has each server prove it. A server that is down does both when it
   * comes back. If only some servers fail to load it or to reproduce its canary, they are at fault and go out of use:
   * groups sent to them would fail at once.
   *
   * @throws {EngineDown} if no server is up. Waiting for one would keep the tickets that need this version, and a server
   *   that comes back would first have to prove it.
   */
  async #bringEverywhere(adapter: ProvenAdapter, signal: AbortSignal): Promise<void> {
    if (this.trouble !== undefined) throw new EngineDown(this.trouble);
    const up = this.#replicas.filter(({ isUp }) => isUp);
    const results = await Promise.allSettled(up.map((replica) => replica.bring(adapter, signal)));
    signal.throwIfAborted();
    const failures = results.flatMap((result, i) =>
      result.status === 'rejected' ? [[up[i]!, result.reason as Error] as const] : [],
    );
    if (failures.length === results.length) {
      const errors = failures.map(([, error]) => error);
      const refusal = errors.find((error) => error instanceof UserError);
      throw refusal ?? errors.find((error) => error instanceof PermanentError) ?? errors[0]!;
    }
    for (const [replica, error] of failures) if (isFault(error)) replica.refuse(error);
  }

  /** Waits until another adapter may be loaded, since one too many could evict one in use, and takes its slot before another load can. */
  async #takeSlot(adapter: LoadedAdapter, signal: AbortSignal): Promise<void> {
    while (this.#adapters.size >= this.options.slots || this.#adapters.has(adapter.name)) {
      await this.#changes.next(signal);
      signal.throwIfAborted();
    }
    this.#adapters.set(adapter.name, adapter);
  }

  #drop(name: string): void {
    const adapter = this.#adapters.get(name);
    if (adapter === undefined) return;
    adapter.isDropped = true;
    if (adapter.calls === 0) void this.#free(adapter);
  }

  async #free({ name }: LoadedAdapter): Promise<void> {
    const limit = this.#closing.signal;
    await Promise.all(this.#replicas.map((replica) => replica.unload(name, limit)));
    // An adapter whose files stay is no reason to keep its slot, or to end the actor.
    await this.options.folder.remove(name).catch((err: unknown) => {
      this.options.log.warn({ err, adapter: name }, 'files of an unloaded adapter not removed');
    });
    this.#adapters.delete(name);
    this.#report();
    this.#changes.notify();
  }

  #report(): void {
    reportEngines(this.#replicas, this.#adapters.size, this.options.slots);
  }
}

const closeMs = 5_000;

/** The parts of an adapter's name. */
interface AdapterIdentity {
  readonly run: string;
  readonly actor: string;
  readonly process: string;
  readonly version: number;
  readonly sha256: string; // of the weights: a restored learner may train a version again
}

/** A name that no other adapter ever has: engines cache by it. */
export function adapterName({ run, actor, process, version, sha256 }: AdapterIdentity): string {
  return `${run}.v${version}.${sha256.slice(0, 12)}.${actor}.${process}`;
}

/** Whether an adapter was loaded by this actor of this run. */
export function isOfActor(name: string, run: string, actor: string): boolean {
  const parts = name.split('.');
  return parts.length === 5 && parts[0] === run && parts[3] === actor;
}

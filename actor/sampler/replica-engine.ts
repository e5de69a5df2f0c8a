import { setTimeout as sleep } from 'node:timers/promises';
import { Gauge } from 'prom-client';
import { Changes } from '../../shared/base/changes.js';
import { UserError } from '../../shared/base/errors.js';
import type { PolicyStore } from '../../shared/broker/policy-store.js';
import { requireFinite } from '../../shared/model/lora.js';
import type { GroupRequest } from '../../shared/model/rollout-draft.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { SampledSequence } from '../../shared/tinker/types.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { AdapterFolder } from './adapter-folder.js';
import type { AdapterServer, NamedAdapter } from '../../shared/engine/adapter-server.js';
import type { Engine, EnginePlace } from './engine.js';
import { Replica } from './replica.js';

export interface ReplicaEngineOptions {
  readonly servers: readonly AdapterServer[]; // of the same kind and model
  readonly folder: AdapterFolder;
  readonly run: string;
  readonly actor: string;
  readonly process: string; // distinguishes the processes that the actor's name has had
  readonly description: string; // of the servers, with their releases
  readonly maxContext: number | undefined;
  readonly slots: number; // adapters that may be loaded at once, at each server
  readonly policies: Pick<PolicyStore, 'fetchAdapter'>;
  readonly log: Logger;
  readonly checks?: HealthChecks | undefined; // of the servers' health
}

/** How often a server is asked for its health, and how long it may take to answer, in ms. */
export interface HealthChecks {
  readonly everyMs: number;
  readonly limitMs: number;
}

/** An adapter at the servers, as long as a version or a call uses it. */
interface LoadedAdapter extends NamedAdapter {
  calls: number;
  isDropped: boolean;
}

const usualChecks: HealthChecks = { everyMs: 2_000, limitMs: 5_000 };
const touchEveryMs = 60_000;

const loadedAdapters = new Gauge({
  name: 'rl_actor_engine_adapters',
  help: 'Adapters that this actor has loaded at its engine.',
});
const enginesUp = new Gauge({
  name: 'rl_actor_engines_up',
  help: 'Engine servers that this actor can sample with now.',
});

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
    const { servers, log, checks = usualChecks } = options;
    this.#checkEveryMs = checks.everyMs;
    this.kind = servers[0]!.kind;
    this.#replicas = servers.map(
      (server) =>
        new Replica(server, checks.limitMs, log, () => {
          this.#noteUp();
        }),
    );
    this.#noteUp();
  }

  get description(): string {
    return this.options.description;
  }

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

  async load(manifest: PolicyManifest, signal: AbortSignal): Promise<void> {
    const { version, adapter } = manifest;
    if (adapter === undefined) {
      throw new UserError(
        `policy version ${version} comes without its adapter, because the backend hands out no weights; start the actors with --sampler tinker`,
      );
    }
    const { run, actor, process, policies, folder } = this.options;
    const { rank, alpha, sha256 } = adapter;
    const name = adapterName({ run, actor, process, version, sha256 });
    const known = this.#adapters.get(name);
    if (known?.isDropped === false) return; // published again, with another sampling session
    const safetensors = await policies.fetchAdapter(manifest);
    await requireFinite(safetensors);
    await this.#freeSlot(name, signal);
    const loaded = { name, folder: '', rank, calls: 0, isDropped: false }; // not written yet
    this.#adapters.set(name, loaded); // takes the slot
    try {
      loaded.folder = await folder.write(name, { safetensors, rank, alpha });
      await this.#loadEverywhere(loaded, signal);
    } catch (error) {
      await this.#free(loaded);
      throw error;
    }
    const before = this.#nameOf.get(version);
    this.#nameOf.set(version, name);
    if (before !== undefined) this.#drop(before); // the learner was restored and trained the version again
    loadedAdapters.set(this.#adapters.size);
  }

  unload(version: number): void {
    const name = this.#nameOf.get(version);
    this.#nameOf.delete(version);
    if (name !== undefined) this.#drop(name);
  }

  place(): EnginePlace {
    const [replica] = this.#replicas.filter(({ isUp }) => isUp).sort((a, b) => a.groups - b.groups);
    if (replica === undefined) throw new Error(this.trouble);
    replica.groups++;
    return {
      generate: (version, request, limitMs, signal) =>
        this.#generate(replica, version, request, limitMs, signal),
      [Symbol.dispose]: () => {
        replica.groups--;
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
    const { run, actor, process } = this.options;
    const isOwn = (name: string) => isOfActor(name, run, actor) && name.endsWith(`.${process}`);
    const wanted = () =>
      [...this.#adapters.values()].filter(({ isDropped, folder }) => !isDropped && folder !== '');
    for (let sinceTouch = 0; ; sinceTouch += this.#checkEveryMs) {
      await sleep(this.#checkEveryMs, undefined, { signal });
      await Promise.all(this.#replicas.map((replica) => replica.check(wanted, isOwn, signal)));
      if (sinceTouch < touchEveryMs) continue;
      sinceTouch = 0;
      await this.options.folder.touch();
    }
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

  /** Loads an adapter at every server that is up; the others load it when they come back. */
  async #loadEverywhere(adapter: NamedAdapter, signal: AbortSignal): Promise<void> {
    await this.ready(signal);
    const up = this.#replicas.filter(({ isUp }) => isUp);
    const results = await Promise.allSettled(up.map((replica) => replica.load(adapter, signal)));
    const failures = results.flatMap((result) =>
      result.status === 'rejected' ? [result.reason as Error] : [],
    );
    const refusal = failures.find((error) => error instanceof UserError);
    if (refusal !== undefined) throw refusal;
    if (failures.length === results.length) throw failures[0]!;
  }

  /** Waits until another adapter may be loaded: one too many could evict one in use. */
  async #freeSlot(name: string, signal: AbortSignal): Promise<void> {
    while (this.#adapters.size >= this.options.slots || this.#adapters.has(name)) {
      await this.#changes.next(signal);
      signal.throwIfAborted();
    }
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
    await this.options.folder.remove(name);
    this.#adapters.delete(name);
    loadedAdapters.set(this.#adapters.size);
    this.#changes.notify();
  }

  #noteUp(): void {
    enginesUp.set(this.#replicas.filter(({ isUp }) => isUp).length);
    this.#changes.notify();
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

import { UserError } from '../../shared/base/errors.js';
import { markHandled } from '../../shared/base/task-scope.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { DownloadedAdapter } from '../../shared/tinker/adapter-archive.js';
import { probeAdapters, type AdapterKind } from '../../shared/tinker/capability-probe.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type { IdleClock } from './idle-clock.js';

export interface AdapterSourceOptions {
  readonly client: Pick<TinkerClient, 'downloadAdapter' | 'downloadExternal' | 'deleteCheckpoint'>;
  readonly run: Pick<TrainingRun, 'saveWeightsExternal'>;
  readonly idle: IdleClock;
  readonly log: Logger;
}

/**
 * The adapters of published versions: from the archive of each version's weights or, where the backend offers none, from
 * files that it saves and signs a URL for. The first version decides which.
 */
export class AdapterSource {
  #kind: AdapterKind = 'archive';
  #isKnown = false;
  readonly #external = new Map<number, Promise<string>>(); // paths of external weights, by version

  constructor(private readonly options: AdapterSourceOptions) {}

  get kind(): AdapterKind {
    return this.#kind;
  }

  /** Saves what the download needs besides the sampler's weights; in the backend's queue when this returns. */
  save(version: number): void {
    if (this.#kind === 'external weights') void this.#saveExternal(version);
  }

  /** @returns the adapter of a version, or undefined if the backend hands out none. */
  async fetch(version: number, samplerPath: string): Promise<DownloadedAdapter | undefined> {
    const { client } = this.options;
    if (!this.#isKnown) {
      const adapter = await this.#first(version, samplerPath);
      this.#isKnown = true;
      if (adapter !== undefined) return adapter;
    }
    if (this.#kind === 'none') return undefined;
    if (this.#kind === 'archive') return client.downloadAdapter(samplerPath);
    const path = await this.#external.get(version);
    if (path === undefined) throw new UserError(`version ${version} has no external weights`);
    return client.downloadExternal(path);
  }

  /** Deletes what `save` has saved of a version. */
  async delete(version: number): Promise<void> {
    const path = await this.#external.get(version);
    if (path !== undefined) await this.options.client.deleteCheckpoint(path);
    this.#external.delete(version);
  }

  /** Called before anything is trained, so that the run still has the weights of this version. */
  async #first(version: number, samplerPath: string): Promise<DownloadedAdapter | undefined> {
    const { client, log } = this.options;
    const first = await probeAdapters(
      () => client.downloadAdapter(samplerPath),
      () => this.#saveExternal(version),
    );
    this.#kind = first.kind;
    if (first.kind === 'archive') return first.adapter;
    if (first.kind === 'none') {
      this.#external.delete(version);
      const { reasons } = first;
      log.warn({ reasons }, 'adapters not available; start actors with --sampler tinker');
    }
    return undefined;
  }

  #saveExternal(version: number): Promise<string> {
    const { run, idle } = this.options;
    const name = `policy-${String(version).padStart(6, '0')}-files`;
    const saved = markHandled(idle.during(run.saveWeightsExternal(name)));
    this.#external.set(version, saved);
    return saved;
  }
}

import { errorText, UserError } from '../../shared/base/errors.js';
import { markHandled } from '../../shared/base/task-scope.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { DownloadedAdapter, SignedLink } from '../../shared/tinker/adapter-archive.js';
import { probeAdapters, type AdapterKind } from '../../shared/tinker/capability-probe.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import { BadRequest } from '../../shared/tinker/errors.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import { policyFilesName } from '../../shared/wire/checkpoint-names.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { IdleClock } from '../step/idle-clock.js';

export interface AdapterSourceOptions {
  readonly client: Pick<
    TinkerClient,
    'downloadAdapter' | 'downloadExternal' | 'locateAdapter' | 'deleteCheckpoint'
  >;
  readonly run: Pick<TrainingRun, 'saveWeightsExternal'>;
  /** Whether actors get links, which only external weights have. */
  readonly asLinks: boolean;
  readonly idle: IdleClock;
  readonly log: Logger;
}

/** A version's adapter from the backend. */
interface FetchedAdapter extends DownloadedAdapter {
  /** Of external weights: their path, and a link to them. */
  readonly external?: { readonly path: string; readonly link: SignedLink };
}

/**
 * The adapters of published versions. They come from the archive of each version's weights or, if the backend offers
 * no archive, from files that it saves and signs a URL for. The first version shows which of these the backend offers.
 */
export class AdapterSource {
  #kind: AdapterKind = 'archive';
  #found: Promise<void> | undefined;
  readonly #external = new Map<number, Promise<string>>(); // paths of external weights, by version

  constructor(private readonly options: AdapterSourceOptions) {}

  get kind(): AdapterKind {
    return this.#kind;
  }

  /** Saves what the download needs besides the sampler's weights; in the backend's queue when this returns. */
  save(version: number): void {
    if (this.#kind === 'external weights') void this.#saveExternal(version);
  }

  /**
   * Finds out how the backend hands out adapters; only the first call asks. It comes before anything is trained, so that
   * the run still has the weights of this version.
   *
   * @throws {UserError} if links are wanted and it gives none.
   */
  find(version: number, samplerPath: string): Promise<void> {
    this.#found ??= markHandled(this.#ask(version, samplerPath));
    return this.#found;
  }

  /** @returns the adapter of a version, or undefined if the backend hands out none. */
  async fetch(
    { version, samplerPath }: Pick<PolicyManifest, 'version' | 'samplerPath'>,
    files?: string, // the external weights of an earlier session
  ): Promise<FetchedAdapter | undefined> {
    const { client } = this.options;
    await this.find(version, samplerPath);
    if (this.#kind === 'none') return undefined;
    if (this.#kind === 'archive') return client.downloadAdapter(samplerPath);
    const path = (await this.#external.get(version)) ?? files;
    if (path === undefined) throw new UserError(`version ${version} has no external weights`);
    const { link, ...adapter } = await client.downloadExternal(path);
    return { ...adapter, external: { path, link } };
  }

  /** Deletes what `save` has saved of a version, here or in an earlier session. */
  async delete({ version, adapter }: Pick<PolicyManifest, 'version' | 'adapter'>): Promise<void> {
    const path = (await this.#external.get(version)) ?? adapter?.files;
    if (path !== undefined) await this.options.client.deleteCheckpoint(path);
    this.#external.delete(version);
  }

  async #ask(version: number, samplerPath: string): Promise<void> {
    const { client, log, asLinks } = this.options;
    if (asLinks) {
      this.#kind = 'external weights';
      await this.#saveExternal(version).catch((cause: unknown) => {
        if (!(cause instanceof BadRequest)) throw cause;
        throw new UserError(
          `--adapter-store is link, but the backend saves no weights for download (${errorText(cause)}): choose nats or a folder`,
          { cause },
        );
      });
      return;
    }
    const first = await probeAdapters(
      () => client.locateAdapter(samplerPath),
      () => this.#saveExternal(version),
    );
    this.#kind = first.kind;
    if (first.kind !== 'none') return;
    this.#external.delete(version);
    const { reasons } = first;
    log.warn({ reasons }, 'adapters not available; start actors with --sampler tinker');
  }

  #saveExternal(version: number): Promise<string> {
    const { run, idle } = this.options;
    const saved = markHandled(idle.during(run.saveWeightsExternal(policyFilesName(version))));
    this.#external.set(version, saved);
    return saved;
  }
}

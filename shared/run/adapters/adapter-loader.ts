import { Histogram } from 'prom-client';
import { errorText, PermanentError, UserError } from '../../base/errors.js';
import type { PolicyStore } from '../../broker/policy-store.js';
import {
  objectOf,
  type PolicyManifest,
  type PublishedAdapter,
} from '../../wire/policy-manifest.js';
import { pathOf, readAdapterFile } from './adapter-folder-store.js';
import type { AllowedSources } from './allowed-sources.js';
import { downloadRanges, LinkRefused, type DownloadOptions } from './ranged-download.js';

const fetchSeconds = new Histogram({
  name: 'rl_actor_adapter_fetch_seconds',
  help: 'Time in which this actor fetched the adapter of a policy version, by where it was: nats, link or folder.',
  labelNames: ['source'],
  buckets: [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100],
});

/** The version's adapter is published only once an actor asks for it by its lease. */
export class AdapterAwaited extends Error {
  override readonly name = 'AdapterAwaited';
}

/**
 * What a manifest says of its adapter, for a sampler that needs it.
 *
 * @throws {AdapterAwaited} if the learner publishes it on request.
 * @throws {UserError} if there is none.
 */
export function requireAdapter({
  version,
  adapter,
  adapterOnRequest,
}: Pick<PolicyManifest, 'version' | 'adapter' | 'adapterOnRequest'>): PublishedAdapter {
  if (adapter !== undefined) return adapter;
  if (adapterOnRequest === true) {
    throw new AdapterAwaited(
      `policy version ${version} comes without its adapter, since no actor needed it so far; this one has asked the learner for it`,
    );
  }
  throw new UserError(
    `policy version ${version} comes without its adapter, because the backend hands out no weights; start the actors with --sampler tinker`,
  );
}

interface AdapterLoaderOptions {
  readonly store: Pick<PolicyStore, 'fetchAdapter'>;
  readonly allowed: Pick<AllowedSources, 'requireAddress' | 'requireFile'>;
  readonly download?: Omit<DownloadOptions, 'allow'>; // limits, replaced in tests
}

/** Fetches adapters from wherever manifests say they are, as far as this process may. */
export class AdapterLoader {
  constructor(private readonly options: AdapterLoaderOptions) {}

  /**
   * @returns the bytes that the manifest describes: no others are ever returned.
   * @throws {UserError} if the place is not among those allowed, or there is no adapter.
   * @throws {AdapterAwaited} if it is not published yet.
   * @throws {PermanentError} if what is there is not the adapter.
   * @throws {Error} if it cannot be fetched now.
   */
  async fetchAdapter(manifest: PolicyManifest, signal: AbortSignal): Promise<Uint8Array> {
    const adapter = requireAdapter(manifest);
    const startedAt = performance.now();
    const source = placeOf(adapter);
    const bytes =
      source === 'nats'
        ? await this.options.store.fetchAdapter(manifest)
        : await this.#fetchElsewhere(manifest.version, adapter, signal);
    fetchSeconds.observe({ source }, (performance.now() - startedAt) / 1_000);
    return bytes;
  }

  async #fetchElsewhere(
    version: number,
    adapter: PublishedAdapter,
    signal: AbortSignal,
  ): Promise<Uint8Array> {
    const { allowed, download } = this.options;
    const of = `the adapter of policy version ${version}`;
    const path = pathOf(adapter.uri);
    try {
      if (path !== undefined) {
        return await readAdapterFile(await allowed.requireFile(path), adapter, signal);
      }
      const allow = (url: URL) => {
        allowed.requireAddress(url);
      };
      const { bytes, sha256, uri } = adapter;
      return await downloadRanges(
        { url: new URL(uri), bytes, sha256 },
        { ...download, allow },
        signal,
      );
    } catch (caught) {
      signal.throwIfAborted();
      const cause = { cause: caught };
      const why = `${of} is not loaded: ${errorText(caught)}`;
      if (caught instanceof UserError) throw new UserError(why, cause);
      if (caught instanceof PermanentError) throw new PermanentError(why, cause);
      if (caught instanceof LinkRefused) throw new Error(why + expiryText(adapter), cause);
      throw new Error(why, cause);
    }
  }
}

function placeOf(adapter: PublishedAdapter): 'nats' | 'link' | 'folder' {
  if (objectOf(adapter) !== undefined) return 'nats';
  return pathOf(adapter.uri) === undefined ? 'link' : 'folder';
}

function expiryText({ expiresAt }: PublishedAdapter): string {
  const remedy =
    'The learner publishes the version again with a new link before the old one expires; check that it runs, and the clocks of both machines';
  if (expiresAt === undefined) return `. ${remedy}`;
  const when = new Date(expiresAt).toISOString();
  return `; the link ${expiresAt < Date.now() ? 'expired at' : 'is good until'} ${when}. ${remedy}`;
}

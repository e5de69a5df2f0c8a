import { PermanentError, UserError } from '../../shared/base/errors.js';
import type { PolicyAdapter } from '../../shared/broker/policy-store.js';
import {
  requireFinite,
  roundToBfloat16,
  WeightsNotFinite,
  weightFormat,
} from '../../shared/model/lora.js';
import {
  AdapterFolderStore,
  deleteAdapterFile,
} from '../../shared/run/adapters/adapter-folder-store.js';
import { sha256 } from '../../shared/base/bytes.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { writeWhenRoom } from '../../shared/service/telemetry/disk-room.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { ActorLease } from '../../shared/wire/actor-lease.js';
import type { PolicyManifest, PublishedAdapter } from '../../shared/wire/policy-manifest.js';
import type { Adapters } from '../settings/adapters.js';
import { AdapterSource, type AdapterSourceOptions } from './adapter-source.js';

interface AdapterSupplyOptions extends Omit<AdapterSourceOptions, 'asLinks'> {
  readonly client: AdapterSourceOptions['client'] & Pick<TinkerClient, 'signLink'>;
  readonly settings: Adapters;
  readonly runName: string;
  readonly leases: () => Promise<readonly ActorLease[]>; // of actors that were seen within the last hour
  readonly signal: AbortSignal; // ends a wait for room on a disk
  readonly log: Logger;
}

/** Weights that are not finite, so that no actor may sample with them. */
export class VersionNotFinite extends Error {
  override readonly name = 'VersionNotFinite';

  constructor(version: number, why: string) {
    super(`policy version ${version} is not published: ${why}`);
  }
}

/** A version's adapter as it will be published, checked and not yet placed. */
export interface CheckedAdapter extends PolicyAdapter {
  readonly link?: Pick<PublishedAdapter, 'uri' | 'expiresAt'>; // to the same bytes
}

/** A link is renewed once less than this, and less than half of its validity, is left. */
const renewBeforeMs = 300_000;

/**
 * Brings the adapters of policy versions from the backend to where actors can fetch them: checks them, rounds them if asked,
 * and puts them into the object store or a shared folder, or has the backend sign a link.
 */
export class AdapterSupply {
  readonly #options: AdapterSupplyOptions;
  readonly #source: AdapterSource;
  readonly #folder: AdapterFolderStore | undefined;
  #wereNeeded: boolean | undefined; // when last asked

  constructor(options: AdapterSupplyOptions) {
    this.#options = options;
    const { adapterStore } = options.settings;
    const asLinks = adapterStore === 'link';
    this.#source = new AdapterSource({ ...options, asLinks });
    if (!asLinks && adapterStore !== 'nats') {
      this.#folder = new AdapterFolderStore(adapterStore, options.runName);
    }
  }

  get kind(): AdapterSource['kind'] {
    return this.#source.kind;
  }

  /**
   * Prepares the place, before the first version of a session.
   *
   * @param manifests of the run so far.
   * @throws {UserError} if adapters cannot be written there.
   */
  async open(manifests: readonly PolicyManifest[]): Promise<void> {
    await this.#folder?.open(new Set(manifests.flatMap(({ adapter }) => adapter?.uri ?? [])));
  }

  /** See {@link AdapterSource.save}. */
  save(version: number): void {
    this.#source.save(version);
  }

  /** See {@link AdapterSource.find}. */
  find(version: number, samplerPath: string): Promise<void> {
    return this.#source.find(version, samplerPath);
  }

  /** Whether an actor samples by itself, or may: then every version is published with its adapter. */
  async areNeeded(): Promise<boolean> {
    const leases = await this.#options.leases();
    const areNeeded = needsAdapters(leases, this.#options.settings.publishAdapters);
    if (areNeeded !== this.#wereNeeded) {
      this.#options.log.info({ areNeeded }, 'whether adapters are published');
    }
    this.#wereNeeded = areNeeded;
    return areNeeded;
  }

  /**
   * Fetches an adapter from the backend, as it is to be published.
   *
   * @returns undefined if the backend hands out none.
   * @throws {VersionNotFinite} if a weight is NaN or infinite.
   * @throws {UserError} if the file cannot be read.
   */
  async fetch(
    manifest: Pick<PolicyManifest, 'version' | 'samplerPath' | 'adapter'>,
  ): Promise<CheckedAdapter | undefined> {
    const { version, adapter: before } = manifest;
    const found = await this.#source.fetch(manifest, before?.files);
    if (found === undefined) return undefined;
    const { adapter, rank, alpha, external } = found;
    try {
      const isRounded = this.#options.settings.adapterDtype === 'bf16';
      const bytes = isRounded ? await roundToBfloat16(adapter) : adapter;
      await requireFinite(bytes);
      const format = weightFormat(bytes);
      const { url: uri, expiresAt } = external?.link ?? {};
      return {
        ...{ bytes, rank, alpha },
        ...(uri !== undefined && { files: external!.path, link: { uri, expiresAt } }),
        ...(format && { format }),
      };
    } catch (caught) {
      if (caught instanceof WeightsNotFinite) throw new VersionNotFinite(version, caught.message);
      if (!(caught instanceof PermanentError)) throw caught;
      throw new UserError(
        `the backend hands out weights of version ${version} that cannot be read: ${caught.message}`,
        { cause: caught },
      );
    }
  }

  /** Puts a checked adapter where actors can fetch it, unless that is the policy store, which stores bytes itself. */
  async place(
    version: number,
    { link, ...adapter }: CheckedAdapter,
  ): Promise<PolicyAdapter | PublishedAdapter> {
    const { settings, log, signal } = this.#options;
    if (settings.adapterStore === 'link' && link !== undefined) {
      const { bytes, ...scale } = adapter;
      const contents = { sha256: sha256(bytes), bytes: bytes.byteLength, ...scale };
      return { ...link, ...contents };
    }
    const folder = this.#folder;
    if (folder === undefined) return adapter;
    return writeWhenRoom('adapters', { log, signal }, () => folder.put(version, adapter));
  }

  /** Whether a version's link expires soon. @param now ms since the epoch. */
  isExpiring({ adapter, publishedAt }: PolicyManifest, now: number): boolean {
    if (adapter?.expiresAt === undefined || adapter.files === undefined) return false;
    const left = adapter.expiresAt - now;
    return left < Math.min(renewBeforeMs, (adapter.expiresAt - publishedAt) / 2);
  }

  /** The same adapter by a new link. */
  async renew(adapter: PublishedAdapter): Promise<PublishedAdapter> {
    const { url: uri, expiresAt } = await this.#options.client.signLink(adapter.files!);
    return { ...adapter, uri, expiresAt };
  }

  /** Deletes what there is of a version's adapter outside the policy store. */
  async delete(manifest: Pick<PolicyManifest, 'version' | 'adapter'>): Promise<void> {
    if (manifest.adapter) await deleteAdapterFile(this.#options.runName, manifest.adapter);
    await this.#source.delete(manifest);
  }
}

/**
 * Whether versions are published with their adapters.
 *
 * @param leases of the actors that were seen within the last hour, so that one that is only being restarted still counts.
 */
export function needsAdapters(
  leases: readonly Pick<ActorLease, 'sampler'>[],
  publish: Adapters['publishAdapters'],
): boolean {
  if (leases.length === 0) return publish === 'auto';
  return leases.some(({ sampler }) => sampler !== 'tinker');
}

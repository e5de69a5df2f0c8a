import { z } from 'zod';
import { PermanentError } from '../base/errors.js';
import { decode, encode } from '../wire/codec.js';
import {
  type AdapterFormat,
  maxAdapterBytes,
  objectOf,
  objectUri,
  PolicyManifest,
  type PublishedAdapter,
} from '../wire/policy-manifest.js';
import { type Entry, KeyValue } from './key-value.js';
import type { Link } from './link.js';
import { ObjectBucket } from './object-bucket.js';
import { ticks, untilAborted } from './tail.js';

/** The learner's part of a manifest; the store adds the adapter's location and the time. */
export type PolicyUpdate = Omit<PolicyManifest, 'v' | 'adapter' | 'publishedAt'>;

/** A LoRA adapter: a PEFT `adapter_model.safetensors` and its scale alpha / rank. */
export interface PolicyAdapter {
  readonly bytes: Uint8Array;
  readonly rank: number;
  readonly alpha: number;
  readonly format?: AdapterFormat; // of its weights
  readonly files?: string; // what the backend saved for download
}

/** The published policy versions of a run: manifests by version, and their adapters. */
export class PolicyStore {
  readonly #link: Link;
  readonly #manifests: KeyValue;
  readonly #weights: ObjectBucket;

  constructor(link: Link) {
    this.#link = link;
    this.#manifests = new KeyValue(link, link.names.buckets.policy);
    this.#weights = new ObjectBucket(link, link.names.objects.weights, () =>
      Promise.resolve(maxAdapterBytes),
    );
  }

  /**
   * Publishes a version: the adapter first, then its manifest, then `current`, so that everything a manifest
   * names already exists. The current version may be published again, for instance with a new sampling
   * session; an older one may not.
   *
   * A learner that was replaced without noticing cannot damage anything: its adapter has its own name, and
   * each manifest is written by compare-and-set over what it read at the start.
   *
   * @param adapter its bytes, to be stored here, or the place where it already is.
   * @throws {Error} if another learner has published this version or publishes it concurrently.
   */
  async publish(
    update: PolicyUpdate,
    adapter?: PolicyAdapter | PublishedAdapter,
  ): Promise<PolicyManifest> {
    const { version } = update;
    const key = `v${version}`;
    const before = await this.#manifests.get(PolicyManifest, key); // read before `current`, so that a concurrent write is noticed
    const current = await this.#manifests.get(PolicyManifest, 'current');
    if (current !== undefined && version < current.value.version) {
      throw new Error(
        `cannot publish policy version ${version}: ${current.value.version} is already published, and versions only rise`,
      );
    }
    const hasOtherWeights = current?.value.samplerPath !== update.samplerPath;
    if (version === current?.value.version && hasOtherWeights) throw publishedByAnother(version);
    const manifest = await this.#withAdapter(update, adapter, before?.value);
    const write = (where: string, expected: number | undefined) =>
      this.#manifests.compareAndSet(PolicyManifest, where, manifest, expected);
    const isWritten = (await write(key, before?.revision)) !== undefined;
    const revision = isWritten ? await write('current', current?.revision) : undefined;
    if (revision === undefined) {
      await this.#undoPublish(manifest, isWritten, before?.value);
      throw publishedByAnother(version);
    }
    const { connection, names } = this.#link;
    connection.publish(names.subjects.policyChanged, encode(Announcement, { revision, manifest }));
    return manifest;
  }

  /**
   * Whether all parts of a published version that are kept here can be read.
   *
   * @param isNewest whether `current` should name it.
   */
  async isWhole(manifest: PolicyManifest, isNewest: boolean): Promise<boolean> {
    const found = [await this.at(manifest.version), ...(isNewest ? [await this.current()] : [])];
    if (found.some((each) => each?.publishedAt !== manifest.publishedAt)) return false;
    const object = manifest.adapter && objectOf(manifest.adapter);
    if (object === undefined) return true;
    try {
      return (await this.#weights.read(object))?.sha256 === manifest.adapter?.sha256;
    } catch (caught) {
      if (caught instanceof PermanentError) return false; // its chunks do not match its entry
      throw caught;
    }
  }

  /**
   * Publishes a version again because NATS lost a part of it, or because its adapter was stored or moved.
   *
   * @param adapter as for `publish`.
   * @param isNewest whether `current` should name it. The manifest of an older version is written only to its
   *   own key.
   * @throws {Error} if another learner has published since.
   */
  async republish(
    { v: _v, adapter: _adapter, publishedAt: _at, ...update }: PolicyManifest,
    adapter: PolicyAdapter | PublishedAdapter | undefined,
    isNewest: boolean,
  ): Promise<PolicyManifest> {
    if (isNewest) return await this.publish(update, adapter);
    const key = `v${update.version}`;
    const before = await this.#manifests.get(PolicyManifest, key);
    const manifest = await this.#withAdapter(update, adapter, before?.value);
    const revision = await this.#manifests.compareAndSet(
      PolicyManifest,
      key,
      manifest,
      before?.revision,
    );
    if (revision === undefined) throw publishedByAnother(update.version);
    return manifest;
  }

  async current(): Promise<PolicyManifest | undefined> {
    return (await this.#manifests.get(PolicyManifest, 'current'))?.value;
  }

  async at(version: number): Promise<PolicyManifest | undefined> {
    return (await this.#manifests.get(PolicyManifest, `v${version}`))?.value;
  }

  /** Returns the versions that are not retired, in rising order. */
  async versions(): Promise<number[]> {
    return (await this.#manifests.keys())
      .flatMap((key) => /^v(\d+)$/.exec(key)?.[1] ?? [])
      .map(Number)
      .sort((a, b) => a - b);
  }

  /** Returns the manifests of the versions that are not retired, in rising order. */
  async manifests(): Promise<PolicyManifest[]> {
    const found: PolicyManifest[] = [];
    for (const version of await this.versions()) {
      const manifest = await this.at(version);
      if (manifest !== undefined) found.push(manifest);
    }
    return found;
  }

  /**
   * Yields the current manifest, then each newer one; versions replaced between two polls are skipped, and a
   * republished version is yielded again. Versions and revisions rise unless the server loses acknowledged
   * data; if it restarts without the newest manifest, the one it then has is yielded.
   */
  async *watch(signal: AbortSignal): AsyncGenerator<PolicyManifest, void, undefined> {
    let newest: Entry<PolicyManifest> | undefined;
    const subject = this.#link.names.subjects.policyChanged;
    for await (const news of ticks(this.#link, subject, 1_000, signal)) {
      const entry =
        announced(news, newest) ??
        (await untilAborted(signal, () => this.#manifests.get(PolicyManifest, 'current')));
      // The time too: after a data loss the same revision may be another manifest.
      const isKnown =
        entry?.revision === newest?.revision &&
        entry?.value.publishedAt === newest?.value.publishedAt;
      if (entry === undefined || isKnown) continue;
      newest = entry;
      yield entry.value;
    }
  }

  /**
   * Reads the bytes of an adapter that is stored here; `AdapterLoader` reads it from anywhere.
   *
   * @throws {PermanentError} if they do not match the manifest.
   * @throws {Error} if the adapter was retired in favor of a newer version.
   */
  async fetchAdapter({ version, adapter }: PolicyManifest): Promise<Uint8Array> {
    const object = adapter && objectOf(adapter);
    if (object === undefined) {
      throw new PermanentError(`policy version ${version} has no adapter in the object store`);
    }
    const found = await this.#weights.read(object);
    if (found === undefined) {
      throw new Error(`the adapter of policy version ${version} has been retired`);
    }
    const { bytes, sha256: digest } = found;
    if (digest !== adapter?.sha256) {
      throw new PermanentError(
        `the adapter of policy version ${version} has SHA-256 ${digest} (${bytes.byteLength} bytes), its manifest says ${adapter?.sha256} (${adapter?.bytes} bytes)`,
      );
    }
    return bytes;
  }

  /**
   * Deletes manifests and adapters of versions that are not in `keep`, except the current version and
   * versions above all kept ones, which were published after `keep` was decided.
   *
   * @param forget deletes what a manifest names elsewhere. If it returns false the manifest stays as the
   *   record of what to delete, and the next call, or another process, tries again.
   * @returns the deleted versions, in rising order.
   */
  async retire(
    keep: ReadonlySet<number>,
    forget: (manifest: PolicyManifest) => Promise<boolean> = () => Promise.resolve(true),
  ): Promise<number[]> {
    const current = await this.current();
    const newest = Math.max(...keep, -1);
    const retired = (await this.versions()).filter(
      (version) => version < newest && version !== current?.version && !keep.has(version),
    );
    const gone: number[] = [];
    for (const version of retired) {
      const manifest = await this.at(version);
      // The manifest last: a retry after a crash needs it to find what to delete.
      const object = manifest?.adapter && objectOf(manifest.adapter);
      if (object !== undefined) await this.#weights.delete(object);
      if (manifest !== undefined && !(await forget(manifest))) continue;
      await this.#manifests.delete(`v${version}`);
      gone.push(version);
    }
    return gone;
  }

  /**
   * Deletes adapters that are stored here and that no manifest names: a learner was killed between the two. Only for the learner
   * that leads, before it publishes.
   *
   * @param confirmLead throws if another learner leads. Called once everything is listed, so the list has nothing of a successor.
   * @returns how many parts of adapters were deleted.
   */
  async deleteOrphans(confirmLead: () => Promise<void>): Promise<number> {
    return await this.#weights.retain(async () => {
      const manifests = [...(await this.manifests()), await this.current()];
      await confirmLead();
      const named = manifests.flatMap((manifest) =>
        manifest?.adapter === undefined ? [] : (objectOf(manifest.adapter) ?? []),
      );
      return new Set(named);
    });
  }

  /**
   * Stores the adapter, unless it is elsewhere.
   *
   * @param before the same version as it was published before. Actors recognize the newer one by its time, even if
   *   the clock was set back meanwhile.
   * @returns the manifest that names the adapter.
   */
  async #withAdapter(
    update: PolicyUpdate,
    adapter: PolicyAdapter | PublishedAdapter | undefined,
    before: PolicyManifest | undefined,
  ): Promise<PolicyManifest> {
    const publishedAt = Math.max(Date.now(), (before?.publishedAt ?? 0) + 1);
    if (adapter === undefined) return { ...update, v: 1, publishedAt };
    const { adapterOnRequest: _, ...rest } = update;
    const manifest: PolicyManifest = { ...rest, v: 1, publishedAt };
    if ('uri' in adapter) return { ...manifest, adapter };
    const { bytes, ...scale } = adapter;
    const nameOf = (digest: string) => adapterName(update.version, digest);
    const sha256 = await this.#weights.put(nameOf, bytes, { replaces: true });
    const contents = { sha256, bytes: bytes.byteLength, ...scale };
    return { ...manifest, adapter: { uri: objectUri(nameOf(sha256)), ...contents } };
  }

  /**
   * Removes the traces of a manifest that lost to another learner's, of the same version or a later one.
   *
   * @param isWritten whether it replaced `before` under the key of its version.
   */
  async #undoPublish(
    { version, adapter }: PolicyManifest,
    isWritten: boolean,
    before: PolicyManifest | undefined,
  ): Promise<void> {
    const key = `v${version}`;
    if (isWritten) {
      const current = await this.current();
      const rightful = current?.version === version ? current : before;
      if (rightful === undefined) await this.#manifests.delete(key);
      else await this.#manifests.put(PolicyManifest, key, rightful);
    }
    const object = adapter && objectOf(adapter);
    if (object === undefined || (await this.at(version))?.adapter?.uri === adapter?.uri) return;
    await this.#weights.delete(object);
  }
}

/** The announcement of a publication to all actors, so that not each of them has to ask for the manifest. */
const Announcement = z.object({ revision: z.int().positive(), manifest: PolicyManifest });

/**
 * The manifest in an announcement; undefined if the manifest must be read from the bucket instead, because there is no
 * announcement, it is empty (from an older learner), or it is late.
 */
function announced(
  news: Uint8Array | undefined,
  newest: Entry<PolicyManifest> | undefined,
): Entry<PolicyManifest> | undefined {
  if (news === undefined || news.byteLength === 0) return undefined;
  try {
    const { revision, manifest } = decode(Announcement, 'announcement', news);
    return revision > (newest?.revision ?? 0) ? { revision, value: manifest } : undefined;
  } catch {
    return undefined;
  }
}

function publishedByAnother(version: number): Error {
  return new Error(`cannot publish policy version ${version}: another learner has published it`);
}

/** The name of a version's adapter: a restored learner may make a version again, with other weights. */
export function adapterName(version: number, digest: string): string {
  return `adapter-${version}-${digest.slice(0, 16)}`;
}

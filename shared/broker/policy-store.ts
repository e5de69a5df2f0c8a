import { createHash } from 'node:crypto';
import { PermanentError } from '../base/errors.js';
import { PolicyManifest } from '../wire/policy-manifest.js';
import { KeyValue } from './key-value.js';
import type { Link } from './link.js';
import { ObjectBucket } from './object-bucket.js';
import { ticks, untilAborted } from './tail.js';

/** What the learner says of a version; the store adds where its adapter lies, and when. */
export type PolicyUpdate = Omit<PolicyManifest, 'v' | 'adapter' | 'publishedAt'>;

/** A LoRA adapter: a PEFT `adapter_model.safetensors` and its scale alpha / rank. */
export interface PolicyAdapter {
  readonly bytes: Uint8Array;
  readonly rank: number;
  readonly alpha: number;
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
   * Publishes a version: the adapter first, then its manifest, then `current`, so that whoever
   * reads a manifest finds what it names. The current version may be published again, for instance
   * with a new sampling session; an older one may not.
   *
   * A learner that another one has replaced without its knowing can spoil nothing: its adapter goes by a name of
   * its own, and each manifest is written only over what was there when it began.
   *
   * @throws {Error} if another learner has published this version, or does so meanwhile.
   */
  async publish(update: PolicyUpdate, adapter?: PolicyAdapter): Promise<PolicyManifest> {
    const { version } = update;
    const key = `v${version}`;
    const before = await this.#manifests.get(PolicyManifest, key); // before `current`: it may tell too late
    const current = await this.#manifests.get(PolicyManifest, 'current');
    if (current !== undefined && version < current.value.version) {
      throw new Error(
        `cannot publish policy version ${version}: ${current.value.version} is out already, and versions only rise`,
      );
    }
    const isOthers = current?.value.samplerPath !== update.samplerPath;
    if (version === current?.value.version && isOthers) throw shutOut(version);
    const manifest = await this.#withAdapter(update, adapter);
    const write = (where: string, expected: number | undefined) =>
      this.#manifests.compareAndSet(PolicyManifest, where, manifest, expected);
    const isWritten =
      (await write(key, before?.revision)) !== undefined &&
      (await write('current', current?.revision)) !== undefined;
    if (!isWritten) {
      await this.#giveWay(manifest);
      throw shutOut(version);
    }
    this.#link.connection.publish(this.#link.names.subjects.policyChanged);
    return manifest;
  }

  /**
   * Whether everything of a published version can be read.
   *
   * @param isNewest whether it is the one that `current` is to name.
   */
  async isWhole(manifest: PolicyManifest, isNewest: boolean): Promise<boolean> {
    const found = [await this.at(manifest.version), ...(isNewest ? [await this.current()] : [])];
    if (found.some((each) => each?.publishedAt !== manifest.publishedAt)) return false;
    const { adapter } = manifest;
    if (adapter === undefined) return true;
    try {
      const bytes = await this.#weights.get(adapter.object);
      return bytes !== undefined && sha256(bytes) === adapter.sha256;
    } catch (caught) {
      if (caught instanceof PermanentError) return false; // its chunks are not those of its entry
      throw caught;
    }
  }

  /**
   * Publishes again what the server has lost of a version.
   *
   * @param isNewest whether `current` is to name it. The manifest of an older one goes to its own key alone.
   * @throws {Error} if another learner has published since.
   */
  async restore(
    { v: _v, adapter: _adapter, publishedAt: _at, ...update }: PolicyManifest,
    adapter: PolicyAdapter | undefined,
    isNewest: boolean,
  ): Promise<PolicyManifest> {
    if (isNewest) return await this.publish(update, adapter);
    const key = `v${update.version}`;
    const before = await this.#manifests.get(PolicyManifest, key);
    const manifest = await this.#withAdapter(update, adapter);
    const revision = await this.#manifests.compareAndSet(
      PolicyManifest,
      key,
      manifest,
      before?.revision,
    );
    if (revision === undefined) throw shutOut(update.version);
    return manifest;
  }

  async current(): Promise<PolicyManifest | undefined> {
    return (await this.#manifests.get(PolicyManifest, 'current'))?.value;
  }

  async at(version: number): Promise<PolicyManifest | undefined> {
    return (await this.#manifests.get(PolicyManifest, `v${version}`))?.value;
  }

  /** The versions that are not retired, rising. */
  async versions(): Promise<number[]> {
    return (await this.#manifests.keys())
      .flatMap((key) => /^v(\d+)$/.exec(key)?.[1] ?? [])
      .map(Number)
      .sort((a, b) => a - b);
  }

  /**
   * The current manifest, then each newer one; those that came and went between two looks are skipped. A
   * version that is published again is told of again. Versions rise, and so do revisions, as long as the
   * server has what it acknowledged; when it comes back without the newest, what it has then is told.
   */
  async *watch(signal: AbortSignal): AsyncGenerator<PolicyManifest, void, undefined> {
    let seen = ''; // the same revision may be another manifest after the server has lost the newest
    for await (const _ of ticks(
      this.#link,
      this.#link.names.subjects.policyChanged,
      1_000,
      signal,
    )) {
      const entry = await untilAborted(signal, () =>
        this.#manifests.get(PolicyManifest, 'current'),
      );
      const id = entry && `${entry.revision} ${entry.value.publishedAt}`;
      if (entry === undefined || id === seen) continue;
      seen = id!;
      yield entry.value;
    }
  }

  /**
   * The adapter's bytes.
   *
   * @throws {PermanentError} if they are not those that the manifest describes.
   * @throws {Error} if the adapter is gone: retired because a newer version has taken its place.
   */
  async fetchAdapter(manifest: PolicyManifest): Promise<Uint8Array> {
    const { version, adapter } = manifest;
    if (adapter === undefined) {
      throw new PermanentError(`policy version ${version} was published without an adapter`);
    }
    const bytes = await this.#weights.get(adapter.object);
    if (bytes === undefined) {
      throw new Error(`the adapter of policy version ${version} has been retired`);
    }
    const digest = sha256(bytes);
    if (digest !== adapter.sha256) {
      throw new PermanentError(
        `the adapter of policy version ${version} has SHA-256 ${digest} (${bytes.byteLength} bytes), its manifest says ${adapter.sha256} (${adapter.bytes} bytes)`,
      );
    }
    return bytes;
  }

  /**
   * Deletes manifests and adapters of versions that are not in `keep`; never those of the current,
   * nor of versions above all that are kept: these were published after it was decided what to keep.
   *
   * @param forget deletes what a manifest names elsewhere. While it returns false the manifest stays, and
   * with it the knowledge of what is to be deleted: the next call, or another process, tries again.
   * @returns the versions that are gone, rising.
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
      // The manifest last: while it stands, a retry after a crash still finds what is to be deleted.
      if (manifest?.adapter !== undefined) await this.#weights.delete(manifest.adapter.object);
      if (manifest !== undefined && !(await forget(manifest))) continue;
      await this.#manifests.delete(`v${version}`);
      gone.push(version);
    }
    return gone;
  }

  /** Stores the adapter. @returns the manifest that names it. */
  async #withAdapter(update: PolicyUpdate, adapter?: PolicyAdapter): Promise<PolicyManifest> {
    const manifest: PolicyManifest = { ...update, v: 1, publishedAt: Date.now() };
    if (adapter === undefined) return manifest;
    const { bytes, rank, alpha } = adapter;
    const digest = sha256(bytes);
    const object = `adapter-${update.version}-${digest.slice(0, 16)}`;
    await this.#weights.put(object, bytes, { replaces: true });
    return {
      ...manifest,
      adapter: { object, sha256: digest, bytes: bytes.byteLength, rank, alpha },
    };
  }

  /** Leaves nothing of a manifest that was not published, where another one of its version was. */
  async #giveWay({ version, adapter }: PolicyManifest): Promise<void> {
    const current = await this.current();
    if (current?.version === version) {
      await this.#manifests.put(PolicyManifest, `v${version}`, current); // ours may stand there
    }
    if (adapter === undefined || current?.adapter?.object === adapter.object) return;
    await this.#weights.delete(adapter.object);
  }
}

function shutOut(version: number): Error {
  return new Error(`cannot publish policy version ${version}: another learner has published it`);
}

/** As much as an adapter may have that comes from the backend. */
const maxAdapterBytes = 2 ** 31;

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

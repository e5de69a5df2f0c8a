import { createHash } from 'node:crypto';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { manifest } from '../../actor/values.js';

/** Adapters as a learner publishes them, for an engine of this process: no broker is in between. */
export class PublishedAdapters {
  readonly #bytes = new Map<string, Uint8Array>(); // safetensors by SHA-256

  /** @returns the manifest of a version without a canary. */
  publish(
    version: number,
    bytes: Uint8Array,
    { rank, alpha }: { readonly rank: number; readonly alpha: number },
  ): PolicyManifest {
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    this.#bytes.set(sha256, bytes);
    const adapter = { uri: `nats:${sha256}`, sha256, bytes: bytes.byteLength, rank, alpha };
    return manifest(version, { adapter });
  }

  fetchAdapter({ adapter }: PolicyManifest): Promise<Uint8Array> {
    return Promise.resolve(this.#bytes.get(adapter!.sha256)!);
  }
}

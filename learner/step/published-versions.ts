import type { PolicyAdapter, PolicyStore } from '../../shared/broker/policy-store.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';

export interface PublishedVersionsOptions {
  readonly policy: Pick<PolicyStore, 'isWhole' | 'restore'>;
  /** How often what NATS keeps of the run was restored after an outage. */
  readonly restorations: () => number;
  /** The adapter of saved weights; undefined where the backend hands out none. */
  readonly download: (samplerPath: string) => Promise<PolicyAdapter | undefined>;
  /** Rejects if another learner leads the run. */
  readonly confirmLead: () => Promise<void>;
  readonly log: Logger;
}

interface Known {
  readonly manifest: PolicyManifest;
  readonly restorations: number; // as of the last time that NATS had it
}

/**
 * The versions that actors may still ask for. A server that is killed may come back without the newest of what it
 * acknowledged. An actor that has not loaded a version by then never could, and tickets wait for it; no
 * newer version comes without them. So after each outage these are looked up, and published again where anything is missing.
 */
export class PublishedVersions {
  readonly #options: PublishedVersionsOptions;
  readonly #known = new Map<number, Known>(); // rising

  constructor(options: PublishedVersionsOptions) {
    this.#options = options;
  }

  /** @param restorations at the start of the publication: an outage during it counts as one since. */
  add(manifest: PolicyManifest, restorations: number): void {
    this.#known.set(manifest.version, { manifest, restorations });
  }

  /** Forgets all versions but these, which actors may still ask for. */
  keep(versions: ReadonlySet<number>): void {
    for (const version of this.#known.keys()) {
      if (!versions.has(version)) this.#known.delete(version);
    }
  }

  /**
   * Publishes again what an outage has cost. To be called in turn with publications.
   *
   * @throws {Error} if another learner leads: what is missing here, it has replaced.
   */
  async mend(): Promise<void> {
    const { policy, restorations, download, confirmLead, log } = this.#options;
    const newest = Math.max(...this.#known.keys());
    for (const [version, known] of this.#known) {
      const now = restorations();
      if (known.restorations === now) continue;
      let { manifest } = known;
      if (!(await policy.isWhole(manifest, version === newest))) {
        await confirmLead();
        const { adapter, samplerPath } = manifest;
        log.warn({ version }, 'NATS has lost a policy version: it is published again');
        const weights = adapter === undefined ? undefined : await download(samplerPath);
        manifest = await policy.restore(manifest, weights, version === newest);
      }
      if (this.#known.has(version)) this.#known.set(version, { manifest, restorations: now });
    }
  }
}

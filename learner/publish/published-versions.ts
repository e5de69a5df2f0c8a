import type { PolicyAdapter, PolicyStore } from '../../shared/broker/policy-store.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import {
  objectOf,
  type PolicyManifest,
  type PublishedAdapter,
} from '../../shared/wire/policy-manifest.js';

interface PublishedVersionsOptions {
  readonly policy: Pick<PolicyStore, 'isWhole' | 'republish'>;
  /** How many times the run's data in NATS was restored after an outage. */
  readonly restorations: () => number;
  /** The adapter of a version for the policy store; undefined if the backend hands out none. */
  readonly download: (
    manifest: PolicyManifest,
  ) => Promise<PolicyAdapter | PublishedAdapter | undefined>;
  /** Rejects if another learner leads the run. */
  readonly confirmLead: () => Promise<void>;
  readonly log: Logger;
}

interface Known {
  readonly manifest: PolicyManifest;
  readonly restorations: number; // as of the last time that NATS had it
}

/** The versions that actors may still request, which are published again when something about them changes or is lost. */
export class PublishedVersions {
  readonly #options: PublishedVersionsOptions;
  readonly #known = new Map<number, Known>(); // rising

  constructor(options: PublishedVersionsOptions) {
    this.#options = options;
  }

  /** @param restorations at the start of the publication, so that an outage during it triggers a check. */
  add(manifest: PolicyManifest, restorations: number): void {
    this.#known.set(manifest.version, { manifest, restorations });
  }

  /** Forgets all versions but these, which actors may still request. */
  keep(versions: ReadonlySet<number>): void {
    for (const version of this.#known.keys()) {
      if (!versions.has(version)) this.#known.delete(version);
    }
  }

  /** Their manifests, the newest first. */
  get manifests(): PolicyManifest[] {
    return [...this.#known.values()].map(({ manifest }) => manifest).reverse();
  }

  /**
   * Publishes a version again with this adapter, unless it was forgotten meanwhile. Must not run concurrently with a publication.
   *
   * @throws {Error} if another learner leads.
   */
  async change(version: number, adapter: PolicyAdapter | PublishedAdapter): Promise<void> {
    const known = this.#known.get(version);
    if (known === undefined) return;
    await this.#options.confirmLead();
    const isNewest = version === this.#newest;
    const manifest = await this.#options.policy.republish(known.manifest, adapter, isNewest);
    if (this.#known.has(version)) this.#known.set(version, { ...known, manifest });
  }

  /**
   * Publishes versions again that an outage has lost. A killed NATS server may restart without the newest data
   * that it acknowledged. An actor could then never load a lost version, its tickets would never be
   * answered, and no newer version would be trained without them. So after each outage every version is
   * checked. Must not run concurrently with a publication.
   *
   * @throws {Error} if another learner leads, since it may have replaced the missing versions.
   */
  async restoreLost(): Promise<void> {
    const { policy, restorations, confirmLead, log } = this.#options;
    const newest = this.#newest;
    for (const [version, known] of this.#known) {
      const now = restorations();
      if (known.restorations === now) continue;
      let { manifest } = known;
      if (!(await policy.isWhole(manifest, version === newest))) {
        if (!this.#known.has(version)) continue; // retired meanwhile
        await confirmLead();
        log.warn({ version }, 'policy version lost by NATS, publishing it again');
        try {
          manifest = await this.#publishAgain(manifest, version === newest);
        } catch (error) {
          if (this.#known.has(version)) throw error; // else it was retired meanwhile, with its weights
        }
      }
      if (this.#known.has(version)) this.#known.set(version, { manifest, restorations: now });
    }
  }

  async #publishAgain(manifest: PolicyManifest, isNewest: boolean): Promise<PolicyManifest> {
    const { policy, download } = this.#options;
    const { adapter } = manifest;
    const isStored = adapter !== undefined && objectOf(adapter) !== undefined;
    return policy.republish(manifest, isStored ? await download(manifest) : adapter, isNewest);
  }

  get #newest(): number {
    return Math.max(...this.#known.keys());
  }
}

import type { PolicyManifest } from '../shared/wire/policy-manifest.js';
import type { Sampler } from './sampler/sampler.js';

/** A version that stays loaded until it is disposed of. */
export interface Hold extends Disposable {
  readonly manifest: PolicyManifest;
}

interface HeldVersionsOptions {
  readonly sampler: Pick<Sampler, 'drop'> & Partial<Pick<Sampler, 'maxVersions'>>;
  /** Loads a version into the sampler. */
  readonly load: (manifest: PolicyManifest, signal: AbortSignal) => Promise<void>;
  /** The version that stays loaded although nothing holds it. */
  readonly newest: () => number | undefined;
}

/** One loaded version (or one that is being loaded) and how many groups sample with it. */
interface Held {
  manifest: PolicyManifest;
  readonly loading: Promise<void>;
  readonly loader: AbortSignal; // signal of the caller that loaded it
  uses: number;
}

/** Number of unused versions that stay loaded: evaluations are pinned to recent versions. */
const keptUnused = 2;

/** The versions in the sampler: each is loaded when it is first held, and dropped some time after it was last held. */
export class HeldVersions {
  readonly #options: HeldVersionsOptions;
  readonly #held = new Map<number, Held>(); // the least recently used first

  constructor(options: HeldVersionsOptions) {
    this.#options = options;
  }

  /** The versions that are held now. */
  get inUse(): number[] {
    const used = [...this.#held.values()].filter(({ uses }) => uses > 0);
    return used.map(({ manifest }) => manifest.version);
  }

  /** The manifest of a version that is loaded or being loaded. */
  manifestOf(version: number): PolicyManifest | undefined {
    return this.#held.get(version)?.manifest;
  }

  /** Replaces the manifest of a loaded version by a newer one. */
  replace(manifest: PolicyManifest): void {
    const held = this.#held.get(manifest.version);
    if (held !== undefined) held.manifest = manifest;
  }

  /** Holds a version once it is loaded. @throws the error of loading it. */
  async hold(manifest: PolicyManifest, signal: AbortSignal): Promise<Hold> {
    const { version } = manifest;
    const held = this.#held.get(version) ?? {
      manifest,
      loading: this.#options.load(manifest, signal),
      loader: signal,
      uses: 0,
    };
    this.#held.set(version, held);
    held.uses++; // before the wait, so that the version counts as in use meanwhile
    this.#dropUnused(); // the sampler may have to make room
    try {
      await held.loading;
    } catch (error) {
      if (this.#held.get(version) === held) this.#held.delete(version);
      const hasLoaderAborted = held.loader.aborted && held.loader !== signal && !signal.aborted;
      if (hasLoaderAborted) return this.hold(manifest, signal);
      throw error;
    }
    let isHeld = true;
    return {
      manifest: held.manifest,
      [Symbol.dispose]: () => {
        if (!isHeld) return;
        isHeld = false;
        held.uses--;
        this.#held.delete(version);
        this.#held.set(version, held);
        this.#dropUnused();
      },
    };
  }

  /** Drops unused versions until another adapter has room in the sampler. */
  makeRoom(): void {
    this.#dropUnused(1);
  }

  /** @param more adapters that are about to be loaded, besides those of the held versions. */
  #dropUnused(more = 0): void {
    const { sampler, newest } = this.#options;
    const unused = [...this.#held.values()].filter(
      ({ uses, manifest }) => uses === 0 && manifest.version !== newest(),
    );
    const { maxVersions = Infinity } = sampler;
    const excess = Math.max(0, unused.length - keptUnused, this.#held.size + more - maxVersions);
    for (const { manifest } of unused.slice(0, excess)) {
      this.#held.delete(manifest.version);
      sampler.drop(manifest.version);
    }
  }
}

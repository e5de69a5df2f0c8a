import pLimit from 'p-limit';
import { errorText } from '../../shared/base/errors.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { LoraModelOptions, TinkerClient } from '../../shared/tinker/client.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import { unweightedDatum } from '../step/datums.js';

/** The fewest versions between two that are retained: each costs the backend a load of the adapter. */
export const retainedEvery = 25;

interface RetainedVersionOptions {
  readonly client: Pick<TinkerClient, 'createLoraModel'>;
  readonly model: LoraModelOptions;
  readonly log: Logger;
}

/**
 * The weights of one published version at a backend that trains and does not sample: a checkpoint, loaded into a second
 * adapter beside the one in training. A forward pass gives the logprobs of a text, as for the canary of each version.
 */
export class RetainedVersion {
  readonly #options: RetainedVersionOptions;
  readonly #oneAtATime = pLimit(1);
  #run: TrainingRun | undefined;
  #version: number | undefined; // whose weights are loaded
  #lastAsked = -Infinity;

  constructor(options: RetainedVersionOptions) {
    this.#options = options;
  }

  /** The version whose weights are there; undefined while none is. */
  get version(): number | undefined {
    return this.#version;
  }

  /** Loads a version in place of the one before, unless that is only a little older. Never rejects. */
  async offer(version: number, statePath: Promise<string>): Promise<void> {
    if (version < this.#lastAsked + retainedEvery) return;
    this.#lastAsked = version;
    await this.#oneAtATime(async () => {
      const { client, model, log } = this.#options;
      this.#version = undefined;
      try {
        const path = await statePath;
        this.#run ??= await client.createLoraModel(model);
        await this.#run.loadState(path, { optimizer: false });
        this.#version = version;
      } catch (caught) {
        log.warn({ version, reason: errorText(caught) }, 'version not loaded for the audit');
      }
    });
  }

  /**
   * Returns the logprob of each token given its predecessors: [T], the first NaN.
   *
   * @throws {Error} if the weights there are of another version.
   */
  logprobs(version: number, text: Int32Array, temperature: number): Promise<Float32Array> {
    return this.#oneAtATime(async () => {
      if (this.#run === undefined || version !== this.#version) {
        throw new Error(`the weights of version ${version} are no longer loaded`);
      }
      const datum = unweightedDatum(text.slice(0, 1), text.slice(1));
      const passed = await this.#run.forward([datum], 'cross_entropy', { temperature });
      return Float32Array.of(NaN, ...passed.logprobs[0]!);
    });
  }
}

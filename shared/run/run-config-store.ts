import { setTimeout as sleep } from 'node:timers/promises';
import { UserError } from '../base/errors.js';
import type { Broker } from '../broker/broker.js';
import { KeyValue } from '../broker/key-value.js';
import type { Link } from '../broker/link.js';
import { runConfigKey } from '../broker/names.js';
import { WireError } from '../wire/codec.js';
import { RunConfig } from './run-config.js';

/** The stored configuration of a run: written by the learner, read by all other services. */
export class RunConfigStore {
  readonly #link: Link;
  readonly #bucket: KeyValue;

  constructor({ link }: Pick<Broker, 'link'>) {
    this.#link = link;
    this.#bucket = new KeyValue(link, link.names.buckets.config);
  }

  async put(config: RunConfig): Promise<void> {
    const { run } = this.#link.names;
    if (config.run !== run) {
      throw new Error(`the configuration of run ${config.run} does not belong to run ${run}`);
    }
    await this.#bucket.put(RunConfig, runConfigKey, config);
  }

  /** @throws {UserError} if it is one of another version of this program. */
  async get(): Promise<RunConfig | undefined> {
    try {
      return (await this.#bucket.get(RunConfig, runConfigKey))?.value;
    } catch (cause) {
      if (!(cause instanceof WireError)) throw cause;
      throw new UserError(
        `the configuration of run ${this.#link.names.run} cannot be read (${cause.message}); was it made by another version of offbeat?`,
        { cause },
      );
    }
  }

  /**
   * Whether a learner has written the configuration, which it does after creating all streams of the
   * run. Nothing of the run may be read before. Safe to call at any time.
   */
  isWritten(): Promise<boolean> {
    return this.#bucket.isInUse();
  }

  /** Waits until a learner has written the configuration, and logs that at once and every 10 seconds. */
  async wait(signal: AbortSignal): Promise<RunConfig> {
    for (let polls = 0; ; polls++) {
      signal.throwIfAborted();
      const config = (await this.isWritten()) ? await this.get() : undefined;
      if (config !== undefined) return config;
      if (polls % 40 === 0) {
        const { run } = this.#link.names;
        this.#link.log.info({ run }, 'waiting for a learner to write the run configuration');
      }
      await sleep(250, undefined, { signal });
    }
  }
}

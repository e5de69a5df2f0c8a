import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from '../broker/broker.js';
import { KeyValue } from '../broker/key-value.js';
import type { Link } from '../broker/link.js';
import { runConfigKey } from '../broker/names.js';
import { RunConfig } from './run-config.js';

/** What to train, as the learner wrote it and everyone else reads it. */
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

  async get(): Promise<RunConfig | undefined> {
    return (await this.#bucket.get(RunConfig, runConfigKey))?.value;
  }

  /**
   * Whether a learner has written it, which it does once all streams of the run are there: only then
   * may anything be read that a run keeps. Safe to ask at any moment.
   */
  isWritten(): Promise<boolean> {
    return this.#bucket.isInUse();
  }

  /** Waits until a learner has written it, saying so in the log at once and every 10 seconds. */
  async wait(signal: AbortSignal): Promise<RunConfig> {
    for (let looks = 0; ; looks++) {
      signal.throwIfAborted();
      const config = (await this.isWritten()) ? await this.get() : undefined;
      if (config !== undefined) return config;
      if (looks % 40 === 0) {
        const { run } = this.#link.names;
        this.#link.log.info({ run }, 'waiting for a learner to write the run configuration');
      }
      await sleep(250, undefined, { signal });
    }
  }
}

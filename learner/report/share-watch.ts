import { Allowance } from '../../shared/broker/allowance.js';
import type { Broker } from '../../shared/broker/broker.js';
import { errorText } from '../../shared/base/errors.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';

const everyMs = 10_000;

/** Names the actors that have used up their share of a stream, in the log and among the events of the run. */
export class ShareWatch implements AsyncDisposable {
  readonly #timer: NodeJS.Timeout;
  readonly #told = new Allowance({ atOnce: 1, perHour: 1 });
  #looking: Promise<void> | undefined;

  constructor(
    private readonly broker: Pick<Broker, 'fullShares' | 'events'>,
    private readonly log: Logger,
  ) {
    this.#timer = setInterval(() => void this.look(), everyMs);
  }

  /** Looks once; each actor is named once an hour and stream. While NATS is away, the look before waits for it. */
  look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#looking;
  }

  async #look(): Promise<void> {
    try {
      for (const { stream, sender: actor, messages } of await this.broker.fullShares()) {
        if (!this.#told.take(`${stream} ${actor}`)) continue;
        this.log.warn({ actor, stream, messages }, 'an actor has used up its share of a stream');
        await this.broker.events.emit({
          ...{ v: 1, at: Date.now(), kind: 'share' },
          ...{ actor, stream, messages },
        });
      }
    } catch (caught) {
      this.log.debug({ reason: errorText(caught) }, 'could not look at the shares');
    }
  }
}

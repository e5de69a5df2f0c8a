import { errorText } from '../base/errors.js';
import { ActorLease } from '../wire/actor-lease.js';
import { KeyValue } from './key-value.js';
import type { Link } from './link.js';
import { nameToken } from './names.js';

/** Which actors live, and which policy version each still samples with. */
export class ActorLeases {
  readonly #link: Link;
  readonly #bucket: KeyValue;

  constructor(link: Link) {
    this.#link = link;
    this.#bucket = new KeyValue(link, link.names.buckets.actors);
  }

  async renew(lease: ActorLease): Promise<void> {
    await this.#bucket.put(ActorLease, nameToken(lease.actor), lease);
  }

  /** The newest lease of every actor that was heard of within the hour. */
  async list(): Promise<ActorLease[]> {
    const leases: ActorLease[] = [];
    for (const key of await this.#bucket.keys()) {
      try {
        const entry = await this.#bucket.get(ActorLease, key);
        if (entry !== undefined) leases.push(entry.value);
      } catch (caught) {
        this.#link.log.warn({ actor: key, reason: errorText(caught) }, 'lease skipped');
      }
    }
    return leases;
  }
}

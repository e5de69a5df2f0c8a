import { errorText } from '../base/errors.js';
import { WireError } from '../wire/codec.js';
import { ActorLease } from '../wire/actor-lease.js';
import { KeyValue } from './key-value.js';
import type { Link } from './link.js';
import { nameToken } from './names.js';

/** The leases of live actors: each names the oldest policy version that the actor still needs. */
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

  /** Returns the newest lease of every actor that renewed one within the last hour. */
  async list(): Promise<ActorLease[]> {
    const leases: ActorLease[] = [];
    for (const key of await this.#bucket.keys()) {
      try {
        const entry = await this.#bucket.get(ActorLease, key);
        if (entry === undefined) continue;
        const { actor } = entry.value;
        if (nameToken(actor) !== key) throw new WireError(`it is the lease of ${actor}`);
        leases.push(entry.value);
      } catch (caught) {
        this.#link.log.warn(
          { actor: key, reason: errorText(caught) },
          'unreadable actor lease skipped',
        );
      }
    }
    return leases;
  }
}

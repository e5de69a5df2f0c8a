import { Histogram } from 'prom-client';
import type { PolicyManifest } from '../shared/wire/policy-manifest.js';

const adoptionSeconds = new Histogram({
  name: 'rl_actor_policy_adoption_seconds',
  help: 'Time from the publication of a policy version until the next token can use it.',
  buckets: [0.01, 0.03, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30],
});
const firstTokenSeconds = new Histogram({
  name: 'rl_publish_to_first_token_seconds',
  help: 'Time from the publication of a version to the first token that this actor draws with it or requests from the backend.',
  buckets: [0.01, 0.03, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30],
});

/** The time from the publication of a version to its first token on this actor. */
interface FirstToken {
  readonly version: number;
  readonly seconds: number;
}

/**
 * Measures how soon this actor uses a published version. A version that was published before the actor started does
 * not count: its delay would include the start of the process.
 */
export class AdoptionTimes {
  readonly #startedAt = Date.now();
  #newestDrawn = -1; // the newest version that drew a token here
  #firstToken: FirstToken | undefined;

  /** The version can be used from now on. @returns the seconds since its publication. */
  adopted({ publishedAt }: PolicyManifest): number {
    const seconds = (Date.now() - publishedAt) / 1_000;
    if (publishedAt >= this.#startedAt) adoptionSeconds.observe(Math.max(0, seconds));
    return seconds;
  }

  /** A token is drawn with the version; only the first one of a newer version counts. */
  drawn({ version, publishedAt }: PolicyManifest): void {
    if (version <= this.#newestDrawn) return;
    this.#newestDrawn = version;
    if (publishedAt < this.#startedAt) return;
    const seconds = Math.max(0, Date.now() - publishedAt) / 1_000;
    firstTokenSeconds.observe(seconds);
    this.#firstToken = { version, seconds };
  }

  /** The newest version that has drawn a token here, and the seconds from its publication to that token. */
  get firstToken(): FirstToken | undefined {
    return this.#firstToken;
  }
}

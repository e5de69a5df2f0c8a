import { randomUUID } from 'node:crypto';
import { notFound } from './http-api.js';

export interface Session {
  readonly id: string;
  readonly trainingRuns: string[];
  readonly samplers: Set<string>;
  lastSeenAt: number; // ms, of the clock of `Sessions`
}

/** After how long without a heartbeat a client counts as gone, in ms: clients send one every 10 s. */
const silenceMs = 600_000;

/**
 * Who is connected. A session ends with this process, or when its client has been silent for long: one
 * that was killed can no longer unload what it trained. Its checkpoints stay, and its samplers too, which
 * others may use.
 */
export class Sessions {
  readonly #sessions = new Map<string, Session>();

  #lookedAt: number;

  constructor(private readonly now: () => number = () => performance.now()) {
    this.#lookedAt = now();
  }

  create(): Session {
    const session: Session = {
      id: randomUUID(),
      trainingRuns: [],
      samplers: new Set(),
      lastSeenAt: this.now(),
    };
    this.#sessions.set(session.id, session);
    return session;
  }

  /** The session, seen now. @throws {ApiError} 404 */
  seen(id: string): Session {
    const session = this.#sessions.get(id);
    if (session === undefined) {
      throw notFound(
        `session ${JSON.stringify(id)} is unknown; sessions end when the backend restarts, or after ${silenceMs / 60_000} minutes without a heartbeat; create another`,
      );
    }
    session.lastSeenAt = this.now();
    return session;
  }

  /** A request that names no session is a sign of life as well. */
  keep(session: Session): void {
    session.lastSeenAt = this.now();
  }

  /** Ends the sessions of clients that are gone, and returns them. To be called every minute or so. */
  endSilent(): Session[] {
    const now = this.now();
    const wasStopped = now - this.#lookedAt > silenceMs / 2; // this process: nobody could be heard
    this.#lookedAt = now;
    if (wasStopped) for (const session of this.#sessions.values()) session.lastSeenAt = now;
    const silent = [...this.#sessions.values()].filter(
      ({ lastSeenAt }) => now - lastSeenAt >= silenceMs,
    );
    for (const { id } of silent) this.#sessions.delete(id);
    return silent;
  }

  /** Ids, the newest first. */
  list(): string[] {
    return [...this.#sessions.keys()].reverse();
  }
}

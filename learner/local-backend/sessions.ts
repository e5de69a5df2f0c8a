import { randomUUID } from 'node:crypto';
import { notFound } from './api-error.js';

export interface Session {
  readonly id: string;
  readonly trainingRuns: string[];
  readonly samplers: Set<string>;
  lastSeenAt: number; // ms since the epoch
}

/** Who is connected. A session ends with this process; a silent client does not lose its runs. */
export class Sessions {
  readonly #sessions = new Map<string, Session>();

  constructor(private readonly now: () => number = Date.now) {}

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
        `session ${JSON.stringify(id)} is unknown; sessions end when the backend restarts, create another`,
      );
    }
    session.lastSeenAt = this.now();
    return session;
  }

  /** Ids, the newest first. */
  list(): string[] {
    return [...this.#sessions.keys()].reverse();
  }
}

import { randomUUID } from 'node:crypto';
import type { CreateSessionRequest, CustomLoss } from '../shared/tinker/api.js';
import { notFound } from './http-api.js';

/** What a client can read back of its own words about a session. */
type SessionAbout = Partial<Pick<CreateSessionRequest, 'user_metadata' | 'display_name'>>;

export interface Session {
  readonly id: string;
  readonly trainingRuns: string[];
  readonly samplers: Set<string>;
  readonly about: SessionAbout;
  readonly customLosses: Map<string, CustomLoss>; // by the id that forward_backward names
  lastSeenAt: number; // ms, by the clock of `Sessions`
}

const rememberedFinished = 10_000;

/** A client without a heartbeat for this long counts as gone, in ms; clients send one every 10 s. */
const inactivityMs = 600_000;

/**
 * The sessions of connected clients. A session ends with this process or when its client has been inactive
 * for `inactivityMs`, since a killed client cannot unload its training runs. Its checkpoints and samplers
 * stay: other clients may use them.
 */
export class Sessions {
  readonly #sessions = new Map<string, Session>();
  readonly #finished = new Set<string>(); // ids, the oldest first

  #lastCheckAt: number;

  constructor(private readonly now: () => number = () => performance.now()) {
    this.#lastCheckAt = now();
  }

  create(about: SessionAbout = {}): Session {
    const session: Session = {
      id: randomUUID(),
      trainingRuns: [],
      samplers: new Set(),
      about,
      customLosses: new Map(),
      lastSeenAt: this.now(),
    };
    this.#sessions.set(session.id, session);
    return session;
  }

  /** Returns a session and records activity. @throws {ApiError} 404 */
  get(id: string): Session {
    const session = this.peek(id);
    session.lastSeenAt = this.now();
    return session;
  }

  /** Returns a session for others to read, which does not keep it from ending. @throws {ApiError} 404 */
  peek(id: string): Session {
    const session = this.#sessions.get(id);
    if (session === undefined) {
      throw notFound(
        `session ${JSON.stringify(id)} is unknown; sessions end when their client finishes them, when the backend restarts, or after ${inactivityMs / 60_000} minutes without a heartbeat; create another`,
      );
    }
    return session;
  }

  /** Ends a session at its client's word; undefined if that had been done before. @throws {ApiError} 404 */
  finish(id: string): Session | undefined {
    if (this.#finished.has(id)) return undefined;
    const session = this.get(id);
    this.#sessions.delete(id);
    this.#finished.add(id);
    const [oldest] = this.#finished;
    if (this.#finished.size > rememberedFinished) this.#finished.delete(oldest!);
    return session;
  }

  /** Records the activity of a request that does not name its session. */
  recordActivity(session: Session): void {
    session.lastSeenAt = this.now();
  }

  /** Ends the sessions of inactive clients and returns them. Call it about once a minute. */
  endInactive(): Session[] {
    const now = this.now();
    // If this process was suspended, it could not receive heartbeats.
    const wasSuspended = now - this.#lastCheckAt > inactivityMs / 2;
    this.#lastCheckAt = now;
    if (wasSuspended) for (const session of this.#sessions.values()) session.lastSeenAt = now;
    const inactive = [...this.#sessions.values()].filter(
      ({ lastSeenAt }) => now - lastSeenAt >= inactivityMs,
    );
    for (const { id } of inactive) this.#sessions.delete(id);
    return inactive;
  }

  /** Returns the session ids, newest first. */
  list(): string[] {
    return [...this.#sessions.keys()].reverse();
  }
}

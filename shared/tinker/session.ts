import { CreateSessionRequest, CreateSessionResponse, SessionHeartbeatRequest } from './api.js';
import { RunLost } from './errors.js';
import { NoAnswer, type TinkerHttp } from './http.js';

/** The version of the API that this client speaks. */
export const sdkVersion = '0.25.0';

/**
 * The session that models and sampling sessions are created in, kept alive by a heartbeat. A server
 * that no longer knows it, as after a restart, gets a new one.
 */
export class Session implements Disposable {
  #id = '';
  #created = 0; // models and sampling sessions of this session, which number them
  #renewal: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isBeating = false;
  #silent = 0; // heartbeats in a row without an answer
  #refused = 0; // heartbeats in a row with an answer that is a failure

  private constructor(
    private readonly http: TinkerHttp,
    private readonly signal: AbortSignal,
  ) {}

  static async open(http: TinkerHttp, signal: AbortSignal): Promise<Session> {
    const session = new Session(http, signal);
    await session.#renew();
    session.#timer = setInterval(() => void session.#beat(), heartbeatMs).unref();
    return session;
  }

  /** Runs `create` with the session and a new number; if the session is lost, retries once in a new one. */
  async create<T>(create: (sessionId: string, seqId: number) => Promise<T>): Promise<T> {
    const id = this.#id;
    try {
      return await create(id, this.#created++);
    } catch (error) {
      if (!(error instanceof RunLost)) throw error;
      this.http.log.warn({ detail: error.failure.detail }, 'session lost, retried in a new one');
      if (this.#id === id) await this.#renew();
      return create(this.#id, this.#created++);
    }
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #renew(): Promise<void> {
    const open = async () => {
      const json = CreateSessionRequest.parse({
        tags: [],
        user_metadata: {},
        sdk_version: sdkVersion,
      });
      const request = {
        operation: 'create_session',
        path: '/api/v1/create_session',
        body: { json },
      };
      const answer = await this.http.call(request, this.signal, { max500s: 1 });
      const session = answer.parse(CreateSessionResponse);
      const { info_message: info, warning_message: warning, error_message: error } = session;
      if (info !== undefined) this.http.log.info({ message: info }, 'server message');
      if (warning !== undefined) this.http.log.warn({ message: warning }, 'server warning');
      if (error !== undefined) this.http.log.error({ message: error }, 'server error message');
      this.#id = session.session_id;
      this.#created = 0;
    };
    this.#renewal ??= open().finally(() => {
      this.#renewal = undefined;
    });
    return this.#renewal;
  }

  async #beat(): Promise<void> {
    if (this.#isBeating) return;
    this.#isBeating = true;
    try {
      const json = SessionHeartbeatRequest.parse({ session_id: this.#id });
      const path = '/api/v1/session_heartbeat';
      const request = { operation: 'session_heartbeat', path, body: { json }, timeoutMs: 10_000 };
      const answer = await this.http.send(request, this.signal);
      this.#silent = 0;
      this.#refused = answer.isOk ? 0 : this.#refused + 1;
      if (answer.isOk) return;
      this.http.log.warn({ ...answer.failure }, 'heartbeat refused');
      // TuFT answers a bare 500 to an unknown session, others 404.
      if (answer.status !== 404 && this.#refused < maxRefused) return;
      await this.#renew();
      this.#refused = 0;
    } catch (caught) {
      if (this.signal.aborted) return;
      const isWorthALine = this.#silent++ % silentBeatsALine === 0;
      const failure = caught instanceof NoAnswer ? caught.failure : { err: caught };
      if (isWorthALine) this.http.log.warn({ ...failure }, 'heartbeat without an answer');
    } finally {
      this.#isBeating = false;
    }
  }
}

const heartbeatMs = 10_000;
const maxRefused = 3;
const silentBeatsALine = 12; // one warning in two minutes

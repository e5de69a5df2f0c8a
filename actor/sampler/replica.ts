import { randomUUID } from 'node:crypto';
import { errorText, UserError } from '../../shared/base/errors.js';
import type { GroupRequest } from '../../shared/model/rollout-draft.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { SampledSequence } from '../../shared/tinker/types.js';
import { AdapterLost, type AdapterServer, type NamedAdapter } from '../../shared/engine/adapter-server.js';
import { EngineDown } from '../../shared/engine/engine-http.js';

/** A busy server may miss one check. */
const maxMissedChecks = 2;

/** One server of several that are alike: whether it is up, and what it is doing. */
export class Replica {
  /** The number of groups that are placed here. */
  groups = 0;
  #reason: string | undefined;
  #missedChecks = 0;
  readonly #calls = new Set<AbortController>();
  readonly #loading = new Map<string, Promise<void>>(); // adapters being loaded, by name

  /**
   * @param healthLimitMs how long the answer to a health check may take.
   * @param onChange called when the server goes down or comes back.
   */
  constructor(
    readonly server: AdapterServer,
    private readonly healthLimitMs: number,
    private readonly log: Logger,
    private readonly onChange: () => void,
  ) {}

  get isUp(): boolean {
    return this.#reason === undefined;
  }

  /** Why the server is not used; undefined if it is. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** Loads an adapter; callers that ask at once for the same one share the request. */
  load(adapter: NamedAdapter, signal: AbortSignal): Promise<void> {
    const loading =
      this.#loading.get(adapter.name) ??
      this.#noticeDown(this.server.load(adapter, signal)).finally(() =>
        this.#loading.delete(adapter.name),
      );
    this.#loading.set(adapter.name, loading);
    return loading;
  }

  /** Unloads an adapter if the server is up; a restarted one has lost it anyway. */
  async unload(name: string, signal: AbortSignal): Promise<void> {
    if (!this.isUp) return;
    try {
      await this.server.unload(name, signal);
    } catch (error) {
      const { url } = this.server;
      this.log.warn({ url, adapter: name, reason: errorText(error) }, 'adapter not unloaded');
    }
  }

  /** Samples with an adapter, which is loaded again if the server has lost it. */
  async generate(
    adapter: NamedAdapter,
    request: GroupRequest,
    limitMs: number,
    signal: AbortSignal,
  ): Promise<SampledSequence[]> {
    const call = new AbortController();
    const abort = (): void => {
      call.abort(signal.reason);
    };
    signal.addEventListener('abort', abort, { once: true });
    this.#calls.add(call);
    const id = randomUUID();
    const ask = () =>
      this.server.generate({ id, adapter: adapter.name, request, limitMs }, call.signal);
    try {
      signal.throwIfAborted();
      return await this.#noticeDown(ask()).catch(async (error: unknown) => {
        if (!(error instanceof AdapterLost)) throw error;
        const { url } = this.server;
        this.log.warn(
          { url, adapter: adapter.name },
          'engine has lost an adapter, loading it again',
        );
        await this.load(adapter, call.signal);
        return await this.#noticeDown(ask());
      });
    } catch (error) {
      if (call.signal.aborted) void this.server.abort(id).catch(() => undefined);
      throw error;
    } finally {
      this.#calls.delete(call);
      signal.removeEventListener('abort', abort);
    }
  }

  /**
   * Checks the server. One that does not answer is taken out of use, and its calls end at once; one that answers
   * again is used once it has the adapters.
   *
   * @param wanted the adapters of now.
   * @param isOwn whether an adapter was loaded by this process.
   */
  async check(
    wanted: () => readonly NamedAdapter[],
    isOwn: (name: string) => boolean,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      await this.server.checkHealth(this.healthLimitMs, signal);
      this.#missedChecks = 0;
      if (this.isUp) return;
      for (const adapter of wanted()) await this.server.load(adapter, signal);
      const names = new Set(wanted().map(({ name }) => name));
      for (const name of await this.server.adapters(signal)) {
        // Dropped while the server was out of use: it had not ended, only hung.
        if (isOwn(name) && !names.has(name)) await this.server.unload(name, signal);
      }
      this.#reason = undefined;
      this.log.info({ url: this.server.url }, 'engine is in use again');
      this.onChange();
    } catch (error) {
      if (signal.aborted || error instanceof UserError) throw error;
      if (!this.isUp || ++this.#missedChecks < maxMissedChecks) return;
      this.#down(errorText(error));
      for (const call of this.#calls) call.abort(error);
    }
  }

  async #noticeDown<T>(work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      if (error instanceof EngineDown) this.#down(error.message);
      throw error;
    }
  }

  #down(reason: string): void {
    const wasUp = this.isUp;
    this.#reason = reason;
    if (!wasUp) return;
    this.log.error({ url: this.server.url, reason }, 'engine is out of use');
    this.onChange();
  }
}

import { UserError } from '../base/errors.js';
import type { GroupRequest } from '../model/rollout-draft.js';
import type { SampledSequence } from '../tinker/types.js';
import { EngineDown } from './engine-http.js';
import type { EngineMetrics } from './engine-metrics.js';

/**
 * A server of one base model and of adapters by name, which it reads from files: what the actor needs
 * of vLLM and SGLang. Each dialect is one implementation: it translates calls and keeps no state.
 */
export interface AdapterServer {
  readonly kind: 'vllm' | 'sglang';
  readonly product: 'vLLM' | 'SGLang'; // for messages
  readonly url: string;
  /** The most probable tokens that a call may ask for at each position; 0: it shows only the drawn ones. */
  readonly mostProbable: number;

  /**
   * Checks by asking that the server can serve the run, except for its adapters.
   *
   * @throws {UserError} naming everything that is missing, with the flag that adds it.
   * @throws {EngineDown} if it does not answer.
   */
  probe(need: EngineNeed, signal: AbortSignal): Promise<ServerFacts>;

  /** How many adapters one batch may use, if the server says so, which may need a call with an adapter before. */
  adapterSlots(signal: AbortSignal): Promise<number | undefined>;

  /** Resolves if the server is up. @throws {EngineDown} if not. */
  checkHealth(limitMs: number, signal: AbortSignal): Promise<void>;

  /** Its own metrics; undefined if it shows no metrics. @throws {EngineDown} if it does not answer. */
  metrics(limitMs: number, signal: AbortSignal): Promise<EngineMetrics | undefined>;

  /** The names of the adapters that can be sampled with now. */
  adapters(signal: AbortSignal): Promise<string[]>;

  /**
   * Loads an adapter from a folder that this server can read. One that is already loaded is left as it is.
   *
   * @throws {UserError} if the server's settings do not admit it, with the flag to change.
   * @throws {EngineDown} if it does not answer.
   */
  load(adapter: NamedAdapter, signal: AbortSignal): Promise<void>;

  /** Unloads an adapter; one that is not loaded is no error. */
  unload(name: string, signal: AbortSignal): Promise<void>;

  /**
   * Samples the sequences of a request with one adapter.
   *
   * @throws {AdapterLost} if the server no longer has the adapter.
   * @throws {EngineDown} if no usable answer came within the limit.
   * @throws {PermanentError} if the server refuses the request.
   */
  generate(call: ServerCall, signal: AbortSignal): Promise<SampledSequence[]>;

  /** Ends a call whose caller has gone, where closing its connection does not, or not at once. */
  abort(call: StartedCall): Promise<void>;
}

/** What a run needs of an engine. */
export interface EngineNeed {
  readonly temperature: number; // of the rollouts to train on
  readonly prompt: Int32Array; // [P] any prompt of the run
}

/** What a server says about itself; undefined where it does not. */
export interface ServerFacts {
  readonly version: string | undefined;
  readonly maxContext: number | undefined; // tokens of prompt and answer together
  readonly endsCalls: boolean; // as soon as an actor asks for it
}

/** A PEFT adapter in a folder. Its name is never used for another adapter. */
export interface NamedAdapter {
  readonly name: string;
  readonly folder: string;
  readonly rank: number;
}

export interface ServerCall {
  readonly id: string; // unique
  readonly adapter: string;
  readonly request: GroupRequest;
  readonly limitMs: number;
}

/** What identifies a call to the server that draws for it. */
export type StartedCall = Pick<ServerCall, 'id' | 'request'>;

/** The server does not have the adapter that a call names: it was restarted. */
export class AdapterLost extends Error {
  override readonly name = 'AdapterLost';
}

/** A call that was not served and is worth repeating, while its ticket stays leased. */
export class NotServed extends Error {
  override readonly name = 'NotServed';

  /** After how many failures with such a limit a call is given up. */
  readonly maxAttempts: number | undefined;
  /** Whether the server only has too much to do, which says nothing of the version that was asked for. */
  readonly isBusy: boolean;
  /** Whether the server answered that it failed at the call, which may be because of what the call asks for. */
  readonly isServerFailure: boolean;

  constructor(
    override readonly cause: Error,
    {
      maxAttempts,
      isBusy = false,
      isServerFailure = false,
    }: {
      readonly maxAttempts?: number;
      readonly isBusy?: boolean;
      readonly isServerFailure?: boolean;
    } = {},
  ) {
    super(cause.message, { cause });
    this.maxAttempts = maxAttempts;
    this.isBusy = isBusy;
    this.isServerFailure = isServerFailure;
  }
}

/** An error that names what an engine lacks for this run, with the flag that adds it. */
export function unfit(engine: string, problems: readonly string[], cause?: unknown): UserError {
  const list = problems.map((problem) => `  - ${problem}`).join('\n');
  return new UserError(`the ${engine} cannot serve this run:\n${list}`, { cause });
}

/**
 * With data parallelism each call goes to any of a server's engines, so a canary that one has reproduced says nothing of the others.
 *
 * @throws {UserError} if the server shows that it has several engines.
 */
export function requireOneEngine(
  { product, url }: AdapterServer,
  metrics: EngineMetrics | undefined,
): void {
  const parts = metrics?.parts ?? 1;
  if (parts === 1) return;
  throw unfit(`${product} at ${url}`, [
    `it has ${parts} engines behind one address (data parallelism), and a canary proves only the one that answers it: ` +
      `start ${parts} servers instead, and name each by --engine-url`,
  ]);
}

/** Whether what failed for one version at a server would fail there again: every call for that version would, and at once. */
export function isFault(error: unknown): boolean {
  return !(error instanceof EngineDown || error instanceof NotServed);
}

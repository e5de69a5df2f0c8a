import { setTimeout as sleep } from 'node:timers/promises';
import {
  isMainThread,
  receiveMessageOnPort,
  Worker,
  type MessagePort,
  type Transferable,
} from 'node:worker_threads';
import { errorText, PermanentError, UserError } from '../base/errors.js';
import { nameSourceLines } from '../base/stack-lines.js';
import { markHandled } from '../base/task-scope.js';

/** The functions of a worker: each takes and returns one structured-cloneable value. */
type Calls<C> = { [K in keyof C]: (input: never) => unknown };

interface Request {
  readonly id: number | undefined; // undefined: no response is expected
  readonly name: string;
  readonly input: unknown;
}
type Response =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly error: CarriedError };
interface CarriedError {
  readonly kind: 'user' | 'permanent' | 'other';
  readonly message: string;
  readonly stack: string;
}

interface WorkerOptions<Event> {
  readonly name?: string; // for errors; by default the path of its script
  readonly onEvent?: (event: Event) => void;
}

/** Asks the thread to end itself. */
const end = 'end';

/** How long a thread may take to notice that it is asked to end, in ms: it cannot within native code. */
export const endMs = 5_000;

/**
 * The main thread's side of a worker thread: `call` runs a function in the worker.
 *
 * @typeParam Event type of the messages that the thread emits besides responses.
 */
export class WorkerCalls<C extends Calls<C>, Event = never> implements AsyncDisposable {
  readonly #worker: Worker;
  readonly #pending = new Map<
    number,
    { resolve: (value: never) => void; reject: (error: Error) => void }
  >();
  /**
   * Rejects when the thread dies or `giveUp` is called; only a restart of the process helps then. Resolves when
   * the thread has been disposed of.
   */
  readonly died: Promise<void>;
  #rejectDied: (error: Error) => void = () => undefined;
  #resolveDied: () => void = () => undefined;
  readonly #exited: Promise<void>;
  #isDisposed = false;
  #death: Error | undefined;
  #calls = 0;

  constructor(url: URL, options: WorkerOptions<Event> = {}) {
    const { name = `the worker ${url.pathname}`, onEvent } = options;
    this.#worker = new Worker(url);
    this.#worker.on('message', (message: Response | { readonly event: Event }) => {
      if ('event' in message) {
        onEvent?.(message.event);
        return;
      }
      const call = this.#pending.get(message.id);
      if ('error' in message) call?.reject(revive(message.error));
      else call?.resolve(message.value as never);
    });
    this.died = markHandled(
      new Promise((resolve, reject) => {
        this.#resolveDied = resolve;
        this.#rejectDied = reject;
      }),
    );
    this.#worker.once('error', (error) => {
      this.giveUp(new Error(`${name} died: ${error.message}`, { cause: error }));
    });
    this.#exited = new Promise((resolve) => {
      this.#worker.once('exit', (code) => {
        const how = this.#isDisposed ? 'was ended' : `ended unexpectedly, with code ${code}`;
        this.giveUp(new Error(`${name} ${how}`));
        resolve();
      });
    });
  }

  /** How many calls wait or run. */
  get depth(): number {
    return this.#pending.size;
  }

  /**
   * @param signal stops waiting; the call continues in the thread, and its response is ignored.
   * @throws the function's error, as a `UserError`, `PermanentError` or `Error`; the error of `died`; the
   *   signal's reason.
   */
  async call<K extends keyof C & string>(
    name: K,
    input: Parameters<C[K]>[0],
    signal?: AbortSignal,
  ): Promise<Awaited<ReturnType<C[K]>>> {
    signal?.throwIfAborted();
    if (this.#death !== undefined) throw this.#death;
    const id = this.#calls++;
    const abandon = (): void => this.#pending.get(id)?.reject(signal?.reason as Error);
    signal?.addEventListener('abort', abandon);
    try {
      return await new Promise((resolve, reject) => {
        this.#pending.set(id, { resolve, reject });
        this.#send({ id, name, input });
      });
    } finally {
      this.#pending.delete(id);
      signal?.removeEventListener('abort', abandon);
    }
  }

  /** Like `call`, but waits for no response. If the function throws, the thread dies. */
  post<K extends keyof C & string>(name: K, input: Parameters<C[K]>[0]): void {
    this.#send({ id: undefined, name, input });
  }

  /** Treats the thread as dead: `died`, all pending calls and all later ones reject with `error`. */
  giveUp(error: Error): void {
    this.#death ??= error;
    for (const call of this.#pending.values()) call.reject(this.#death);
    if (this.#isDisposed) this.#resolveDied();
    else this.#rejectDied(this.#death);
  }

  /**
   * Ends the thread at the next turn of its event loop, so a call may be left half done, but not within native
   * code: ended there, the thread takes the whole process with it.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isDisposed = true;
    this.#worker.postMessage(end);
    await Promise.race([this.#exited, sleep(endMs, undefined, { ref: false })]);
    await this.#worker.terminate();
  }

  #send(request: Request): void {
    this.#worker.postMessage(request, ownBuffers(request.input));
  }
}

/** The thread's own side of {@link WorkerCalls}. */
interface CallServer<Event> {
  /** Receives every request that has arrived, without returning to the event loop. */
  drain(): void;
  emit(event: Event): void;
}

/**
 * Serves calls inside the worker.
 *
 * @param options.isConcurrent starts each call as it arrives instead of after the previous one.
 * @param options.beforeEnd ends what this thread has started, such as threads of its own.
 */
export function serveCalls<C extends Calls<C>, Event = never>(
  port: MessagePort,
  calls: C,
  {
    isConcurrent = false,
    beforeEnd,
  }: { isConcurrent?: boolean; beforeEnd?: () => Promise<void> } = {},
): CallServer<Event> {
  if (!isMainThread) nameSourceLines(); // each thread has stacks of its own
  let isEnding = false;
  const serve = async ({ id, name, input }: Request): Promise<void> => {
    if (isEnding) return;
    const run = calls[name as keyof C] as unknown as (input: unknown) => unknown;
    let response: Response;
    try {
      const value = await run(input);
      if (id === undefined) return;
      response = { id, value };
    } catch (error) {
      if (id === undefined) throw error;
      response = { id, error: carry(error) };
    }
    port.postMessage(response, 'value' in response ? ownBuffers(response.value) : []);
  };
  let tail = Promise.resolve();
  const receive = (request: Request | typeof end): void => {
    if (request === end) {
      isEnding = true;
      if (beforeEnd === undefined) process.exit(); // of this thread
      void beforeEnd().finally(() => process.exit());
    } else if (isConcurrent) void serve(request);
    else tail = tail.then(() => serve(request));
  };
  port.on('message', receive);
  return {
    drain() {
      for (;;) {
        const received: { message: Request | typeof end } | undefined = receiveMessageOnPort(port);
        if (received === undefined) return;
        receive(received.message);
      }
    },
    emit(event) {
      port.postMessage({ event });
    },
  };
}

/**
 * Returns the memory that can be transferred instead of copied: buffers of typed arrays that span them.
 * Excludes Node's Buffers, since small ones share a pool.
 */
function ownBuffers(value: unknown): Transferable[] {
  const found = new Set<ArrayBuffer>();
  const visit = (part: unknown): void => {
    if (ArrayBuffer.isView(part)) {
      const { buffer, byteLength } = part;
      const isWhole = buffer instanceof ArrayBuffer && byteLength === buffer.byteLength;
      if (isWhole && byteLength > 0 && !Buffer.isBuffer(part)) found.add(buffer);
    } else if (Array.isArray(part)) part.forEach(visit);
    else if (typeof part === 'object' && part !== null) Object.values(part).forEach(visit);
  };
  visit(value);
  return [...found];
}

function carry(error: unknown): CarriedError {
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  const kind =
    error instanceof UserError ? 'user' : error instanceof PermanentError ? 'permanent' : 'other';
  return { kind, message: errorText(error), stack };
}

/** Recreates an error with its class, which decides what the caller does, and the worker's stack. */
function revive({ kind, message, stack }: CarriedError): Error {
  const error =
    kind === 'user'
      ? new UserError(message)
      : kind === 'permanent'
        ? new PermanentError(message)
        : new Error(message);
  error.stack = stack;
  return error;
}

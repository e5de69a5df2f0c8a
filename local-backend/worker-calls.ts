import { Worker, type MessagePort, type Transferable } from 'node:worker_threads';
import { errorText, PermanentError, UserError } from '../shared/base/errors.js';

/** What a worker offers: each call takes one value and returns one, both structured-cloneable. */
type Calls<C> = { [K in keyof C]: (input: never) => unknown };

interface Request {
  readonly id: number;
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

/** The other thread, from the main one: `call` runs there, one after another, in the order made. */
export class WorkerCalls<C extends Calls<C>> implements AsyncDisposable {
  readonly #worker: Worker;
  readonly #pending = new Map<
    number,
    { resolve: (value: never) => void; reject: (error: Error) => void }
  >();
  /** Rejects when the thread dies, which nothing but a restart of the process can mend. */
  readonly died: Promise<never>;
  #isDisposed = false;
  #death: Error | undefined;
  #calls = 0;

  constructor(url: URL) {
    this.#worker = new Worker(url);
    this.#worker.on('message', (response: Response) => {
      const call = this.#pending.get(response.id);
      this.#pending.delete(response.id);
      if ('error' in response) call?.reject(revive(response.error));
      else call?.resolve(response.value as never);
    });
    this.died = new Promise((_, reject) => {
      const die = (error: Error) => {
        this.#death ??= error;
        for (const call of this.#pending.values()) call.reject(error);
        this.#pending.clear();
        if (!this.#isDisposed) reject(error);
      };
      this.#worker.once('error', die);
      this.#worker.once('exit', (code) => {
        die(new Error(`the worker ${url.pathname} ended with code ${code}`));
      });
    });
    this.died.catch(() => undefined); // whoever awaits it hears of it
  }

  /** How many calls wait or run. */
  get depth(): number {
    return this.#pending.size;
  }

  call<K extends keyof C & string>(
    name: K,
    input: Parameters<C[K]>[0],
  ): Promise<Awaited<ReturnType<C[K]>>> {
    if (this.#death !== undefined) return Promise.reject(this.#death);
    return new Promise((resolve, reject) => {
      const id = this.#calls++;
      this.#pending.set(id, { resolve, reject });
      const request: Request = { id, name, input };
      this.#worker.postMessage(request, ownBuffers(input));
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isDisposed = true;
    await this.#worker.terminate();
  }
}

/** Inside the worker: answers calls, each after the one before has ended. */
export function serveCalls<C extends Calls<C>>(port: MessagePort, calls: C): void {
  let tail = Promise.resolve();
  port.on('message', ({ id, name, input }: Request) => {
    tail = tail.then(async () => {
      let response: Response;
      try {
        const run = calls[name as keyof C] as unknown as (input: unknown) => unknown;
        response = { id, value: await run(input) };
      } catch (error) {
        response = { id, error: carry(error) };
      }
      port.postMessage(response, 'value' in response ? ownBuffers(response.value) : []);
    });
  });
}

/**
 * The memory that can change threads instead of being copied: of typed arrays that fill their
 * buffer. Node's Buffers stay out, because small ones share a pool that must not leave.
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

/** The same error on this side: its class decides what the caller does, its stack is the worker's. */
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

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';

/** What a process answers to calls by name; arguments and results must survive JSON. */
export type Calls = Readonly<Record<string, (argument: never) => Promise<unknown>>>;

interface Call {
  readonly id: number;
  readonly name: string;
  readonly argument: unknown;
}

type Answer = { readonly id: number } & ({ readonly result: unknown } | { readonly error: string });

/** Processor time and memory of a process so far. */
export interface Usage {
  readonly cpuMs: number;
  readonly residentMiB: number;
  readonly peakMiB: number;
}

/** A process of a bench, which plays one part of a run. It is killed at the end of its scope. */
export class BenchProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #open = new Map<number, PromiseWithResolvers<unknown>>();
  #calls = 0;

  /** @param entry its module, which calls `serveCalls`; `args` are its command line. */
  constructor(entry: URL, args: readonly string[], nodeOptions: readonly string[] = []) {
    const stdio: ('inherit' | 'ignore' | 'ipc')[] = ['ignore', 'inherit', 'inherit', 'ipc'];
    this.#child = fork(entry, args, { stdio, execArgv: [...nodeOptions] });
    this.#child.on('message', (answer: Answer) => {
      const call = this.#open.get(answer.id);
      this.#open.delete(answer.id);
      if ('error' in answer) call?.reject(new Error(answer.error));
      else call?.resolve(answer.result);
    });
    this.#child.once('exit', (code) => {
      for (const { reject } of this.#open.values()) {
        reject(new Error(`${args.join(' ')} ended with ${code}`));
      }
    });
  }

  async call<T>(name: string, argument?: unknown): Promise<T> {
    const id = this.#calls++;
    const answer = withResolvers<unknown>();
    this.#open.set(id, answer);
    this.#child.send({ id, name, argument } satisfies Call);
    return (await answer.promise) as T;
  }

  get usage(): Usage {
    return usageOf(this.#child.pid!);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exited;
  }
}

/** Answers the calls of the process that started this one. */
export function serveCalls(calls: Calls): void {
  process.on('message', ({ id, name, argument }: Call) => {
    const answering = calls[name]!(argument as never);
    answering.then(
      (result) => process.send!({ id, result } satisfies Answer),
      (caught: unknown) => process.send!({ id, error: String(caught) } satisfies Answer),
    );
  });
}

interface PromiseWithResolvers<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (reason: Error) => void;
}

function withResolvers<T>(): PromiseWithResolvers<T> {
  let settle!: Omit<PromiseWithResolvers<T>, 'promise'>;
  const promise = new Promise<T>((resolve, reject) => {
    settle = { resolve, reject };
  });
  return { promise, ...settle };
}

/** Linux only, in its usual ticks of 10 ms. */
export function usageOf(pid: number): Usage {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const [user, system] = stat.slice(stat.lastIndexOf(')')).split(' ').slice(12, 14).map(Number);
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const mib = (field: string): number =>
    Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) / 1_024;
  return { cpuMs: 10 * (user! + system!), residentMiB: mib('VmRSS'), peakMiB: mib('VmHWM') };
}

import { spawn } from 'node:child_process';
import { closeSync, fstatSync, openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { parentPipe } from '../../shared/service/parent-pipe.js';

export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/**
 * A child that cannot outlive us. It has its own process group, so that Ctrl-C in the terminal reaches
 * only us and we end the children in order; and it watches the pipe that is its standard input, which
 * the kernel closes when we are killed.
 */
export class ManagedProcess {
  readonly pid: number | undefined;
  readonly exited: Promise<Exit>;
  readonly startedAt = Date.now(); // ms since the epoch
  /** Where its own part of the log begins, in bytes. */
  readonly logStart: number;
  #isStopping = false;

  /** @param logPath both output streams are appended here by the child itself. */
  constructor({ file, args, env }: Command, logPath: string) {
    const log = openSync(logPath, 'a');
    this.logStart = fstatSync(log).size;
    try {
      const child = spawn(file, args, {
        detached: true,
        stdio: ['pipe', log, log],
        env: { ...process.env, ...env, [parentPipe]: '1' },
      });
      child.stdin?.on('error', () => undefined); // it closed its end: it is ending
      this.pid = child.pid;
      this.exited = new Promise((resolve) => {
        child.on('exit', (code, signal) => {
          resolve({ code: code ?? undefined, signal: signal ?? undefined });
        });
        child.on('error', ({ message }) => {
          resolve({ code: undefined, signal: undefined, failure: message });
        });
      });
    } finally {
      closeSync(log);
    }
  }

  /** Whether we asked it to end, so that its end is no surprise. */
  get isStopping(): boolean {
    return this.#isStopping;
  }

  /**
   * Asks it to end, waits at most `graceMs`, then kills the rest of its process group.
   *
   * @param hurry cuts the wait short.
   */
  async stop(graceMs: number, hurry: AbortSignal): Promise<Exit> {
    this.#isStopping = true;
    this.#kill('SIGTERM', 'itself');
    const patience = new AbortController();
    const signal = AbortSignal.any([hurry, patience.signal]);
    await Promise.race([this.exited, sleep(graceMs, undefined, { signal }).catch(() => undefined)]);
    patience.abort();
    this.#kill('SIGKILL', 'group');
    const exit = await this.exited;
    await this.#groupGone();
    return exit;
  }

  /** Its children end a moment later; without an init process they stay as zombies, so the wait is bounded. */
  async #groupGone(): Promise<void> {
    for (let i = 0; i < 10 && this.#kill(0, 'group'); i++) await sleep(20);
  }

  /** Whether there was a process to take the signal; 0 only asks. */
  #kill(signal: NodeJS.Signals | 0, whom: 'itself' | 'group'): boolean {
    if (this.pid === undefined) return false;
    try {
      return process.kill(whom === 'group' ? -this.pid : this.pid, signal);
    } catch {
      return false;
    }
  }
}

/** How a process ended. */
export interface Exit {
  readonly code: number | undefined;
  readonly signal: NodeJS.Signals | undefined;
  /** Why it never started, when it did not. */
  readonly failure?: string;
}

/** `ended with code 1`, for a sentence that begins with the process's name. */
export function describeExit({ code, signal, failure }: Exit): string {
  if (failure !== undefined) return `could not start: ${failure}`;
  return signal === undefined ? `ended with code ${code ?? 'unknown'}` : `was killed by ${signal}`;
}

/**
 * Runs "$@" and ends it when our standard input closes, for programs that do not watch theirs.
 * The watcher is a separate process, so the program ends with the launcher even if this shell was killed
 * as well; it is a shell, because it survives a kill of every Node process.
 */
const script = `
early=
trap 'early=1' TERM INT # a signal may come before there is a program to pass it to
exec 3<&0
"$@" 3<&- </dev/null &
program=$!
trap 'kill -TERM "$program"' TERM INT
if [ -n "$early" ]; then kill -TERM "$program"; fi
(
  while read -r _; do :; done
  kill -TERM "$program"
  for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$program" || exit; sleep 0.5; done
  kill -KILL "$program"
) <&3 3<&- >/dev/null 2>&1 &
watcher=$!
exec 3<&-
while :; do
  wait "$program"
  code=$?
  kill -0 "$program" 2>/dev/null || break
done
kill -KILL "$watcher" 2>/dev/null
wait "$watcher" 2>/dev/null
exit "$code"
`;

/** The same command, ended when its standard input closes. */
export function tieToParent({ file, args, env }: Command): Command {
  return {
    file: '/bin/sh',
    args: ['-c', script, 'offbeat-tie', file, ...args],
    ...(env !== undefined && { env }),
  };
}

import {
  closeSync,
  openSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { utimes } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { UserError } from '../base/errors.js';
import { makeFolder } from '../base/make-folder.js';

/** The process that locks a folder, as the lock file has it. */
const Holder = z.object({
  pid: z.int().positive(),
  command: z.string().optional(), // offbeat up
  isReader: z.boolean().optional(), // it holds the folder for seconds, to read it
  host: z.string().optional(), // absent: the file is of an earlier release, which wrote only the pid
  // Absent on systems without /proc:
  bootId: z.string().optional(), // of the kernel since it started; its containers have the same
  pidNamespace: z.string().optional(), // where the pid counts: each container has its own
  startTime: z.string().optional(), // in clock ticks; a later process with its pid has another
});
type Holder = z.infer<typeof Holder>;

/** A running process holds the lock of a folder. */
export class FolderInUse extends UserError {
  override readonly name = 'FolderInUse';

  constructor(
    readonly isReader: boolean,
    message: string,
  ) {
    super(message);
  }
}

/** How often the holder of a lock sets the time of its file, by which other containers see that it runs. */
const renewEveryMs = 5_000;
const expiresMs = 30_000;

interface LockOptions {
  /** Whether this process only reads the folder, for seconds; others wait for it. */
  readonly isReader?: boolean;
  /** How long to wait for a reader to end. */
  readonly readerMs?: number;
  /** How long to wait for any other holder to end; by default not at all. */
  readonly holderMs?: number;
  /**
   * Takes over a lock of another container or host that is not renewed while it is watched for this long. For a service
   * that a cluster starts again elsewhere; without it a lock of another host is only removed by hand.
   */
  readonly watchMs?: number;
  /** Called once, with whom it waits for, if it waits for a holder. */
  readonly onWait?: (reason: string) => void;
  readonly signal?: AbortSignal;
}

/**
 * Locks a folder against other processes until disposed. A lock whose holder has died is taken over.
 *
 * @param command of this process, to name it in errors: `offbeat up`.
 * @throws {FolderInUse} if another process holds it, or may hold it on another host.
 */
export async function lockFolder(
  folder: string,
  command: string,
  { isReader, readerMs = 10_000, holderMs = 0, watchMs, onWait, signal }: LockOptions = {},
): Promise<Disposable> {
  await makeFolder(folder);
  const path = join(folder, '.lock');
  const text = JSON.stringify({ ...thisProcess(), command, isReader });
  const start = performance.now();
  let first: Lock | undefined; // as this process found it
  let isWaiting = false; // for its holder
  for (let look = 1; !createFile(path, text); look++) {
    const lock = readLock(path);
    if (lock === undefined) continue; // it was released just now
    first ??= lock;
    const waitedMs = performance.now() - start;
    if (isHeld(lock)) {
      const { holder } = lock;
      const isWatched = watchMs !== undefined && placeOf(holder) !== 'here' && isSame(lock, first);
      if (isWatched && waitedMs >= watchMs && removeAbandoned(path, lock)) continue;
      const mayEndMs = holder.isReader === true ? readerMs : holderMs;
      const refusal = inUse(holder, folder, path);
      if (!isWatched && waitedMs >= mayEndMs) throw refusal;
      if (!isWaiting) onWait?.(refusal.message);
      isWaiting = true;
    } else {
      const isBeingWritten = lock.text === '' && look < emptyLooks;
      if (!isBeingWritten && removeAbandoned(path, lock)) continue;
    }
    await sleep(lookEveryMs, undefined, { signal });
  }
  const renewal = setInterval(() => {
    const now = new Date();
    utimes(path, now, now).catch(() => undefined); // the folder was renamed, or its disk is away
  }, renewEveryMs).unref();
  return {
    [Symbol.dispose]: () => {
      clearInterval(renewal);
      // A user may have removed it, and another process taken the folder.
      if (readLock(path)?.text === text) rmSync(path, { force: true });
    },
  };
}

/** Whether a process holds the lock of a folder, and is no reader. */
export function isInUse(folder: string): boolean {
  const lock = readLock(join(folder, '.lock'));
  return lock !== undefined && isHeld(lock) && lock.holder.isReader !== true;
}

/** @returns false if the file exists. */
function createFile(path: string, text: string): boolean {
  let file: number;
  try {
    file = openSync(path, 'wx');
  } catch (caught) {
    if ((caught as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw caught;
  }
  try {
    writeSync(file, text); // at once: until then others see a lock without a holder
    return true;
  } catch (caught) {
    rmSync(path, { force: true }); // the disk is full
    throw caught;
  } finally {
    closeSync(file);
  }
}

interface Lock {
  readonly text: string;
  readonly holder: Holder | undefined; // undefined: the file names none
  readonly renewedAt: number; // ms since the epoch
}

/** Whether a lock is still the same one, and was not renewed. */
function isSame(now: Lock, before: Lock): boolean {
  return now.text === before.text && now.renewedAt === before.renewedAt;
}

/** How long a file may be empty before its writer is taken for dead: 2 s. */
const emptyLooks = 40;
const lookEveryMs = 50;

/** The lock in a file; undefined if there is none. */
function readLock(path: string): Lock | undefined {
  try {
    const text = readFileSync(path, 'utf8');
    return { text, holder: holderIn(text), renewedAt: statSync(path).mtimeMs };
  } catch (caught) {
    if ((caught as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw caught;
  }
}

function holderIn(text: string): Holder | undefined {
  try {
    const json: unknown = JSON.parse(text);
    return Holder.safeParse(typeof json === 'number' ? { pid: json } : json).data;
  } catch {
    return undefined;
  }
}

/** Where a holder runs, as seen from this process. */
type Place = 'here' | 'another container' | 'another host';

function placeOf({ host, bootId, pidNamespace }: Holder): Place {
  const us = thisProcess();
  if (host === undefined) return 'here';
  if (host !== us.host && (bootId === undefined || bootId !== us.bootId)) return 'another host';
  // A host that was started again since has another kernel, and a container another namespace.
  return bootId === us.bootId && pidNamespace === us.pidNamespace ? 'here' : 'another container';
}

function isHeld(lock: Lock): lock is Lock & { readonly holder: Holder } {
  const { holder, renewedAt } = lock;
  if (holder === undefined) return false;
  switch (placeOf(holder)) {
    case 'here':
      return isAlive(holder);
    case 'another container':
      return Date.now() - renewedAt < expiresMs;
    case 'another host':
      return true; // its processes cannot be seen, and its clock may differ
  }
}

/** Whether the process runs that has the holder's pid and is as old; one that was killed may stay as a zombie. */
function isAlive({ pid, host, startTime }: Holder): boolean {
  if (host === undefined && pid === process.pid) return false; // in a container each start has the same
  try {
    process.kill(pid, 0);
  } catch (caught) {
    if ((caught as NodeJS.ErrnoException).code !== 'EPERM') return false; // else it is another user's
  }
  const now = statOf(pid);
  if (now === undefined) return true;
  return !'ZX'.includes(now.state) && (startTime === undefined || startTime === now.startTime);
}

function inUse(holder: Holder, folder: string, path: string): FolderInUse {
  const { pid, command, host } = holder;
  const who = `process ${pid}${command === undefined ? '' : ` (${command})`}`;
  const [where, remedy] = {
    here: ['', 'wait until it ends, or end it'],
    'another container': [
      ` in another container or outside of this one (${host})`,
      `end it there; if it was killed, try again in ${expiresMs / 1_000} s`,
    ],
    'another host': [` on the host ${host}`, `end it there; if it no longer runs, remove ${path}`],
  }[placeOf(holder)];
  return new FolderInUse(holder.isReader === true, `${who}${where} is using ${folder}; ${remedy}`);
}

/**
 * Removes a lock if it is still the same. Only one process at a time may: a slower one would remove the lock of the
 * process that took the folder over.
 *
 * @returns false if another process is at it.
 */
function removeAbandoned(path: string, lock: Lock): boolean {
  const guard = `${path}.takeover`;
  if (!createFile(guard, '')) {
    const age = Date.now() - (readLock(guard)?.renewedAt ?? Infinity);
    if (age > expiresMs) rmSync(guard, { force: true }); // its process was killed at that moment
    return false;
  }
  try {
    const now = readLock(path);
    if (now !== undefined && isSame(now, lock)) rmSync(path);
    return true;
  } finally {
    rmSync(guard, { force: true });
  }
}

function thisProcess(): Holder {
  return {
    pid: process.pid,
    host: hostname(),
    bootId: orUndefined(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()),
    pidNamespace: orUndefined(() => readlinkSync('/proc/self/ns/pid')),
    startTime: statOf(process.pid)?.startTime,
  };
}

/** The third and the 22nd field of /proc/PID/stat; the second, in parentheses, is the name and may hold blanks. */
function statOf(pid: number): { readonly state: string; readonly startTime: string } | undefined {
  const text = orUndefined(() => readFileSync(`/proc/${pid}/stat`, 'latin1'));
  const fields = text?.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state, startTime] = [fields?.[0], fields?.[19]];
  return state === undefined || startTime === undefined ? undefined : { state, startTime };
}

function orUndefined<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

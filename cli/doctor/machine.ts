import { readFile } from 'node:fs/promises';
import { availableParallelism, freemem } from 'node:os';
import { finding, ok, type Finding } from './finding.js';

/** The machine, or the share of it that a container has. */
export interface Machine {
  readonly nodeVersion: string; // 20.11.0
  readonly platform: string;
  readonly architecture: string;
  readonly cores: number;
  readonly cpuFlags: ReadonlySet<string> | undefined; // undefined if the system does not report them
  readonly memoryBytes: number; // available now
  readonly openFiles: number | undefined; // that a process may open; undefined: unknown
}

export async function readMachine(): Promise<Machine> {
  const [cpuInfo, limits, quota] = await Promise.all(
    ['/proc/cpuinfo', '/proc/self/limits', '/sys/fs/cgroup/cpu.max'].map(textOf),
  );
  const flags = /^(?:flags|Features)\s*:(.*)$/m.exec(cpuInfo ?? '')?.[1];
  const files = /^Max open files\s+(\d+|unlimited)/m.exec(limits ?? '')?.[1];
  const [, used, period] = /^(\d+) (\d+)/.exec(quota ?? '') ?? [];
  const constrained = process.constrainedMemory();
  return {
    nodeVersion: process.versions.node,
    platform: process.platform,
    architecture: process.arch,
    cores: Math.min(
      availableParallelism(),
      used === undefined ? Infinity : Number(used) / Number(period),
    ),
    cpuFlags: flags === undefined ? undefined : new Set(flags.trim().split(/\s+/)),
    // An unlimited cgroup reports an absurdly large limit.
    memoryBytes: Math.min(freemem(), constrained === 0 ? Infinity : constrained),
    openFiles: files === undefined ? undefined : files === 'unlimited' ? Infinity : Number(files),
  };
}

/** Training the embedded model with two actors was measured to take 1.5 GiB. */
const neededBytes = 2 * 2 ** 30;

/** Each process holds sockets, its log, models and the files of Node.js itself. */
const neededFiles = 1_024;

export function machineFindings(machine: Machine): Finding[] {
  const { memoryBytes, openFiles } = machine;
  const memory = `${gib(memoryBytes)} GiB of memory are available`;
  const files = `a process may open ${openFiles ?? 'an unknown number of'} files`;
  return [
    nodeFinding(machine),
    cpuFinding(machine),
    memoryBytes < neededBytes
      ? finding(
          'memory',
          'warning',
          `${memory}; a small run takes ${gib(neededBytes)}`,
          'littleMemory',
        )
      : ok('memory', memory),
    openFiles !== undefined && openFiles < neededFiles
      ? finding('files', 'warning', files, 'fewFiles')
      : ok('files', files),
  ];
}

function nodeFinding({ nodeVersion }: Machine): Finding {
  const [major = 0, minor = 0] = nodeVersion.split('.').map(Number);
  const isOld = major < 20 || (major === 20 && minor < 11);
  const found = `Node.js ${nodeVersion}`;
  return isOld ? finding('node', 'error', found, 'oldNode') : ok('node', found);
}

function cpuFinding({ architecture, platform, cores, cpuFlags }: Machine): Finding {
  const isIntel = architecture === 'x64';
  const hasAvx2 = !isIntel || cpuFlags === undefined || cpuFlags.has('avx2');
  const vectors =
    isIntel && cpuFlags !== undefined ? (hasAvx2 ? ', with AVX2' : ', without AVX2') : '';
  const found = `${Number(cores.toFixed(1))} cores, ${platform} on ${architecture}${vectors}`;
  if (!hasAvx2) return finding('cpu', 'warning', found, 'noAvx2');
  return cores < 2 ? finding('cpu', 'warning', found, 'fewCores') : ok('cpu', found);
}

function gib(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1);
}

async function textOf(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch {
    return undefined; // another system
  }
}

/** A server whose answers have a Date header. */
export interface Clock {
  readonly name: string; // for messages
  readonly url: string; // that answers a GET, with any status
}

/** The clock of a server in an answer, and our clock before and after it. All in ms since the epoch. */
interface Reading {
  readonly date: number; // of its Date header: whole seconds, cut off
  readonly askedAt: number;
  readonly answeredAt: number;
}

/** Latencies and ages are shown in tenths of seconds; a lease of an actor counts for ten seconds. */
const toleratedMs = 2_000;

/**
 * @param clocks of other machines, as far as the user has named any.
 * @returns a finding for each that can be read; one that says so if none can.
 */
export async function clockFindings(
  clocks: readonly Clock[],
  signal: AbortSignal,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const clock of clocks) {
    const reading = await read(clock.url, signal);
    if (reading !== undefined) findings.push(clockFinding(clock.name, reading));
  }
  if (findings.length > 0) return findings;
  return [finding('clock', 'skipped', 'no server sends its time', 'clockUnknown')];
}

export function clockFinding(name: string, reading: Reading): Finding {
  const skewMs = skewOf(reading);
  const found =
    skewMs === 0
      ? `that of ${name} agrees with ours`
      : `that of ${name} is ${(Math.abs(skewMs) / 1_000).toFixed(1)} s ${skewMs > 0 ? 'ahead' : 'behind'}`;
  return Math.abs(skewMs) > toleratedMs
    ? finding('clock', 'error', found, 'clockSkewed')
    : ok('clock', found);
}

/** The smallest possible difference of the other clock, in ms; negative if it is behind, 0 if it may be right. */
export function skewOf({ date, askedAt, answeredAt }: Reading): number {
  if (date > answeredAt) return date - answeredAt;
  return Math.min(0, date + 999 - askedAt);
}

async function read(url: string, signal: AbortSignal): Promise<Reading | undefined> {
  const askedAt = Date.now();
  try {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(5_000)]);
    const response = await fetch(url, { signal: limit, redirect: 'manual' });
    const answeredAt = Date.now();
    await response.body?.cancel();
    const date = Date.parse(response.headers.get('date') ?? '');
    return Number.isNaN(date) ? undefined : { date, askedAt, answeredAt };
  } catch {
    signal.throwIfAborted();
    return undefined; // the check of the server itself reports why
  }
}

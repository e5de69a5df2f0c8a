import { readFile } from 'node:fs/promises';
import { availableParallelism, freemem } from 'node:os';
import { finding, ok, type Finding } from './finding.js';

/** The machine, or the share of it that a container has. */
export interface Machine {
  readonly nodeVersion: string; // 20.11.0
  readonly platform: string;
  readonly architecture: string;
  readonly cores: number;
  readonly cpuFlags: ReadonlySet<string> | undefined; // undefined where the system does not tell
  readonly memoryBytes: number; // to be had now
  readonly openFiles: number | undefined; // that a process may have; undefined: not told
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
    // An unlimited cgroup is told as an absurdly large one.
    memoryBytes: Math.min(freemem(), constrained === 0 ? Infinity : constrained),
    openFiles: files === undefined ? undefined : files === 'unlimited' ? Infinity : Number(files),
  };
}

/** A training of the built-in model with two actors was seen to take 1.5 GiB. */
const neededBytes = 2 * 2 ** 30;

/** Each process holds sockets, its log, models and the files of Node.js itself. */
const neededFiles = 1_024;

export function machineFindings(machine: Machine): Finding[] {
  const { memoryBytes, openFiles } = machine;
  const memory = `${gib(memoryBytes)} GiB of memory can be had`;
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

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { offbeatProgram } from '../../shared/base/package-root.js';

export interface Ended {
  readonly code: number | null; // null when a signal killed it
  readonly out: string;
  readonly err: string;
}

/** Runs an offbeat command to its end, in a folder. */
export async function runOffbeat(
  words: readonly string[],
  folder: string,
  env: Readonly<Record<string, string>> = {},
): Promise<Ended> {
  const child = spawn(process.execPath, [offbeatProgram, ...words], {
    cwd: folder,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, out, err };
}

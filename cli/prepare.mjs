import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runChild } from './children.mjs';
import {
  compilerSettings,
  orphanedOutputs,
  sourceFingerprint,
  whyBuildIsStale,
  whyInstallIsStale,
} from './staleness.mjs';

const fingerprintFile = 'dist/.fingerprint';

/** Longer than any installation takes. */
const lockOutdatedMs = 20 * 60_000;

/**
 * Installs dependencies and compiles, each only if needed. Prints nothing if all is up to date; a
 * failing step prints its whole output.
 *
 * @returns {Promise<string | undefined>} what went wrong.
 */
export async function prepare(root) {
  const unlock = await lock(root);
  try {
    return (await install(root)) ?? (await build(root));
  } finally {
    unlock();
  }
}

async function install(root) {
  const reason = whyInstallIsStale(root);
  if (reason === undefined) return undefined;
  process.stderr.write(`installing dependencies (${reason})\n`);
  // The npm that runs us may not be the one on PATH, and may not be on PATH at all.
  const npm = process.env.npm_execpath;
  const [command, ...first] = npm?.endsWith('.js') ? [process.execPath, npm] : ['npm'];
  const flags = ['ci', '--include=dev', '--ignore-scripts', '--no-audit', '--no-fund'];
  const { code, output } = await runChild(command, [...first, ...flags], {
    cwd: root,
    isQuiet: true,
  });
  if (code === 0) return undefined;
  return `${output}npm ci failed with code ${code}; see above. Is the npm registry reachable?`;
}

async function build(root) {
  const fingerprint = sourceFingerprint(root);
  const reason = whyBuildIsStale(root, fingerprint, fingerprintFile);
  if (reason === undefined) return undefined;
  process.stderr.write(`compiling (${reason})\n`);
  for (const path of orphanedOutputs(root)) rmSync(path);
  // The compiler writes a deleted output again only without its record of earlier builds.
  if (reason.endsWith('is missing')) {
    for (const name of ['.tsbuildinfo', '.tsbuildinfo-browser']) {
      rmSync(join(root, 'dist', name), { force: true });
    }
  }
  const compiler = join(root, 'node_modules/typescript/bin/tsc');
  for (const project of compilerSettings(root)) {
    const args = [compiler, '-p', project];
    const { code, output } = await runChild(process.execPath, args, { cwd: root, isQuiet: true });
    if (code !== 0) return `${output}the TypeScript compiler failed with code ${code}; see above`;
  }
  const bundler = [join(root, 'cli/bundle.mjs')];
  const { code, output } = await runChild(process.execPath, bundler, { cwd: root, isQuiet: true });
  if (code !== 0) return `${output}the bundler failed with code ${code}; see above`;
  writeFileSync(join(root, fingerprintFile), fingerprint);
  return undefined;
}

/** Two starts at once must not install or compile at the same time: the second waits for the first. */
async function lock(root) {
  const path = join(root, '.cache/prepare.lock');
  mkdirSync(join(root, '.cache'), { recursive: true });
  for (let isFirst = true; ; isFirst = false) {
    try {
      writeFileSync(path, String(process.pid), { flag: 'wx' });
      const unlock = () => rmSync(path, { force: true });
      process.once('exit', unlock);
      return () => {
        process.off('exit', unlock);
        unlock();
      };
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (isAbandoned(path)) rmSync(path, { force: true });
    else {
      if (isFirst) process.stderr.write(`waiting for another start to prepare (${path})\n`);
      await sleep(200);
    }
  }
}

/** Its holder was killed; or, if the process id was reused, the lock is too old to be valid. */
function isAbandoned(path) {
  try {
    const holder = Number(readFileSync(path, 'utf8')); // empty, so 0: about to be written
    return Date.now() - statSync(path).mtimeMs > lockOutdatedMs || (holder > 0 && !isAlive(holder));
  } catch {
    return false; // just released
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { offbeatProgram, packageRoot } from '../../shared/base/package-root.js';

const run = promisify(execFile);
const folder = dirname(offbeatProgram);
const bundler = join(packageRoot, 'cli/bundle.mjs');

describe('the bundle', () => {
  it('the scripts that a bundled file starts in threads and processes are beside it', async () => {
    const started = new Set<string>();
    for (const name of (await readdir(folder)).filter((name) => name.endsWith('.js'))) {
      const text = await readFile(join(folder, name), 'utf8');
      for (const [, script] of text.matchAll(/new URL\("([^"]+)", import\.meta\.url\)/g)) {
        started.add(script!);
      }
    }
    assert(started.size >= 5, [...started].join(', '));
    for (const script of started) assert(existsSync(join(folder, script)), script);
  });

  it('an unexpected error of the bundled program names the line of its source', async () => {
    const failing = `process.stdout.write = () => { throw new TypeError('no terminal'); };`;
    const env = {
      ...process.env,
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(failing)}`,
    };
    const args = [offbeatProgram, 'solve', '3', '7', '21', '84'];
    const caught = await run(process.execPath, args, { env }).catch((error: unknown) => error);
    assert.match(
      String((caught as { stderr?: string }).stderr),
      /TypeError: no terminal[^]*at solveCommand \(\/.*\/tools\/solve\/solve\.ts:\d+:\d+\)/,
    );
  });

  it('a new bundle leaves the files of a run in progress, and removes those that are a day old', async () => {
    const root = await emptyProgram();
    try {
      const own = join(root, 'dist/bundle');
      await mkdir(own);
      for (const [name, hours] of [
        ['chunk-A.js', 23],
        ['chunk-B.js', 25],
      ] as const) {
        await writeFile(join(own, name), '');
        const at = new Date(Date.now() - hours * 3_600_000);
        await utimes(join(own, name), at, at);
      }
      await run(process.execPath, [bundler, root]);
      const found = await readdir(own);
      assert(found.includes('cli.js'));
      assert.deepEqual(
        found.filter((name) => name.startsWith('chunk')),
        ['chunk-A.js'],
      );
    } finally {
      await rm(root, { recursive: true });
    }
  });

  it('a CommonJS package that would have no names in the bundle is refused', async () => {
    const root = await emptyProgram();
    try {
      await mkdir(join(root, 'node_modules/lazy'), { recursive: true });
      await writeFile(join(root, 'node_modules/lazy/index.js'), 'exports.answer = 42;');
      await writeFile(join(root, 'dist/cli/cli.js'), `console.log(await import('lazy'));`);
      await assert.rejects(run(process.execPath, [bundler, root]), {
        code: 1,
        stderr:
          /import\(\) of node_modules\/lazy\/index\.js finds no names .* add its package to external/,
      });
    } finally {
      await rm(root, { recursive: true });
    }
  });
});

/** A new checkout whose compiled files are empty. */
async function emptyProgram(): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), 'offbeat-bundle-'));
  const script = await readFile(bundler, 'utf8');
  for (const [, entry] of script.matchAll(/^  '(.*\.js)',$/gm)) {
    await mkdir(join(root, 'dist', dirname(entry!)), { recursive: true });
    await writeFile(join(root, 'dist', entry!), '');
  }
  return root;
}

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
    const root = await mkdtemp(join(tmpdir(), 'offbeat-bundle-'));
    try {
      const script = await readFile(join(packageRoot, 'cli/bundle.mjs'), 'utf8');
      for (const [, entry] of script.matchAll(/^  '(.*\.js)',$/gm)) {
        await mkdir(join(root, 'dist', dirname(entry!)), { recursive: true });
        await writeFile(join(root, 'dist', entry!), '');
      }
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
      await run(process.execPath, [join(packageRoot, 'cli/bundle.mjs'), root]);
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
});

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('../../../tools/pretrain/main.js', import.meta.url));
const small = '--steps=300 --batch-size=2 --hidden-size=64 --num-layers=1 --threads=1'.split(' ');

describe('the program that pre-trains the embedded model', { timeout: 120_000 }, () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-pretrain-'));
  });
  after(() => rm(folder, { recursive: true }));

  const start = (out: string, ...flags: string[]): ChildProcess =>
    spawn(process.execPath, [program, `--out=${join(folder, out)}`, ...small, ...flags], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  const ended = async (child: ChildProcess) => (await once(child, 'exit')) as [number | null];

  it('a pre-training that was stopped and resumed gives the weights of an uninterrupted one', async () => {
    assert.deepEqual(await ended(start('whole')), [0, null]);
    const stopped = start('resumed');
    for await (const line of stopped.stdout!) {
      if (String(line).includes('"step":20')) stopped.kill('SIGTERM');
    }
    assert((await readdir(join(folder, 'resumed'))).includes('optimizer.safetensors'));
    assert.deepEqual(await ended(start('resumed', '--resume')), [0, null]);
    const [whole, resumed] = await Promise.all(
      ['whole', 'resumed'].map((out) => readFile(join(folder, out, 'model.safetensors'))),
    );
    assert(whole!.equals(resumed!));
    assert(!(await readdir(join(folder, 'resumed'))).includes('optimizer.safetensors'));
  });

  it('a pre-training that has nothing to resume says so', async () => {
    const child = start('whole', '--resume');
    let said = '';
    child.stderr!.on('data', (chunk: Buffer) => (said += chunk.toString()));
    child.stdout!.on('data', (chunk: Buffer) => (said += chunk.toString()));
    assert.notEqual((await ended(child))[0], 0);
    assert.match(said, /no interrupted training to resume: .*optimizer\.safetensors/);
  });
});

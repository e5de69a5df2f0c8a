import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, stat, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { AdapterFolder } from '../../../actor/sampler/adapter-folder.js';
import { adapterBytes, rank } from './engine-values.js';

const minute = 60_000;

describe('the folders of several actors', () => {
  let parent: string;
  before(async () => {
    parent = await mkdtemp(join(tmpdir(), 'offbeat-folders-'));
  });
  after(() => rm(parent, { recursive: true }));

  const open = (actor: string) => AdapterFolder.create(parent, 'r', actor);

  it('the folder of a dead actor is removed after it has stayed untouched while another actor watched', async () => {
    await using own = await open('a');
    const dead = await open('b');
    const start = Date.now();
    for (const passed of [4, 5.1, 6.1]) {
      await own.touch(start + passed * minute, passed * minute);
      assert((await readdir(parent)).includes(basename(dead.path)), `${passed} minutes`);
    }
    await own.touch(start + 7.1 * minute, 7.1 * minute);
    assert.deepEqual(await readdir(parent), [basename(own.path)]);
  });

  it('the folder of a predecessor is removed at the first look', async () => {
    const dead = await open('a');
    await using other = await open('a-b');
    const longAgo = new Date(Date.now() - 6 * minute);
    for (const { path } of [dead, other]) await utimes(path, longAgo, longAgo);
    await using own = await open('a');
    const left = [own, other].map(({ path }) => basename(path));
    assert.deepEqual((await readdir(parent)).sort(), left.sort());
  });

  it('actors that were suspended for an hour keep their folders', async () => {
    await using first = await open('a');
    await using second = await open('b');
    const woken = Date.now() + 60 * minute;
    for (let passed = 0; passed < 5; passed++) {
      await first.touch(woken + passed * minute, passed * minute);
      await second.touch(woken + (passed + 0.9) * minute, (passed + 0.9) * minute);
    }
    assert.equal((await readdir(parent)).length, 2);
  });

  it('an actor whose clock is an hour late keeps its folder', async () => {
    await using own = await open('a');
    await using late = await open('b');
    const start = Date.now();
    for (let passed = 0; passed < 5; passed++) {
      await late.touch(start + (passed - 60) * minute, passed * minute);
      await own.touch(start + passed * minute, passed * minute);
    }
    assert.equal((await readdir(parent)).length, 2);
  });

  it('a version that cannot be written leaves no part of itself', async () => {
    await using own = await open('a');
    await mkdir(join(own.path, 'v1', 'taken'), { recursive: true });
    const files = { safetensors: adapterBytes(1), rank, alpha: 8 };
    await assert.rejects(own.write('v1', files), { code: 'ENOTEMPTY' });
    assert.deepEqual(await readdir(own.path), ['v1']);
  });

  it('a folder that was removed is made again, and the next version written', async () => {
    await using own = await open('a');
    await rm(own.path, { recursive: true });
    await own.touch();
    const path = await own.write('v2', { safetensors: adapterBytes(2), rank, alpha: 8 });
    assert((await stat(join(path, 'adapter_model.safetensors'))).size > 0);
  });
});

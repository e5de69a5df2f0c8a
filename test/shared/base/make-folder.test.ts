import assert from 'node:assert/strict';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { makeFolder } from '../../../shared/base/make-folder.js';

describe('a folder that is made', () => {
  let root: string;
  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'offbeat-folder-'));
  });
  after(() => rm(root, { recursive: true }));

  it('has those above it, each with its mode, and the first one is named', async () => {
    const path = join(root, 'a/b/c');
    assert.equal(await makeFolder(path, 0o700), join(root, 'a'));
    assert.equal((await stat(path)).mode & 0o777, 0o700);
    assert.equal((await stat(join(root, 'a'))).mode & 0o777, 0o700);
    assert.equal(await makeFolder(path), undefined);
    assert.equal(await makeFolder(join(path, 'd')), join(path, 'd'));
  });

  it('may be made by several at once', async () => {
    const path = join(root, 'x/y/z');
    const made = await Promise.all(Array.from({ length: 8 }, () => makeFolder(path)));
    assert(made.includes(join(root, 'x')));
    assert((await stat(path)).isDirectory());
  });

  it('is refused where a file is in the way', async () => {
    await writeFile(join(root, 'file'), '');
    await assert.rejects(makeFolder(join(root, 'file')), /EEXIST/);
    await assert.rejects(makeFolder(join(root, 'file/below')), /ENOTDIR/);
  });

  const skip = process.platform === 'linux' ? false : 'only Linux has /proc';
  it(
    'is refused where a folder takes no entry and says that it is not there',
    { skip },
    async () => {
      for (const path of ['/proc/offbeat', '/proc/offbeat/runs/r']) {
        await assert.rejects(makeFolder(path), /ENOENT.*\/proc\/offbeat/);
      }
    },
  );
});

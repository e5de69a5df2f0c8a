import assert from 'node:assert/strict';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { makeFolder, makeOutputFolder } from '../../../shared/base/make-folder.js';

describe('the creation of a folder', () => {
  let root: string;
  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'offbeat-folder-'));
  });
  after(() => rm(root, { recursive: true }));

  it('a folder is created with its parents, each with its mode, and the first new one is named', async () => {
    const path = join(root, 'a/b/c');
    assert.equal(await makeFolder(path, 0o700), join(root, 'a'));
    assert.equal((await stat(path)).mode & 0o777, 0o700);
    assert.equal((await stat(join(root, 'a'))).mode & 0o777, 0o700);
    assert.equal(await makeFolder(path), undefined);
    assert.equal(await makeFolder(join(path, 'd')), join(path, 'd'));
  });

  it('a folder may be created by several callers at once', async () => {
    for (let round = 0; round < 200; round++) {
      const path = join(root, `x${round}/y/z`);
      const made = await Promise.all(Array.from({ length: 8 }, () => makeFolder(path)));
      assert(made.includes(join(root, `x${round}`)));
      assert((await stat(path)).isDirectory());
    }
  });

  it('a folder is refused if a file is in the way', async () => {
    await writeFile(join(root, 'file'), '');
    await assert.rejects(makeFolder(join(root, 'file')), /EEXIST/);
    await assert.rejects(makeFolder(join(root, 'file/below')), /ENOTDIR/);
  });

  it('a folder that a user has named is refused with the reason and the flag', async () => {
    const path = join(root, 'taken');
    await writeFile(path, '');
    await assert.rejects(makeOutputFolder(path, '--out'), {
      name: 'UserError',
      message: /taken is not a folder that can be written \(EEXIST.*\); name another with --out$/,
    });
    await makeOutputFolder(join(root, 'new'), '--out');
    assert((await stat(join(root, 'new'))).isDirectory());
  });

  const skip = process.platform === 'linux' ? false : 'only Linux has /proc';
  it(
    'a folder is refused if its parent accepts no entry and reports that it does not exist',
    { skip },
    async () => {
      for (const path of ['/proc/offbeat', '/proc/offbeat/runs/r']) {
        await assert.rejects(makeFolder(path), /ENOENT.*\/proc\/offbeat/);
      }
    },
  );
});

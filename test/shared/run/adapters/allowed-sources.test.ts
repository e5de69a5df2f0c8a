import assert from 'node:assert/strict';
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { UserError } from '../../../../shared/base/errors.js';
import { adapterSources, AllowedSources } from '../../../../shared/run/adapters/allowed-sources.js';

const allows = (sources: string, address: string): boolean => {
  try {
    new AllowedSources(sources, '--adapter-sources').requireAddress(new URL(address));
    return true;
  } catch (error) {
    assert(error instanceof UserError);
    return false;
  }
};

describe('the places that adapters may be fetched from', () => {
  it('without the setting no address and no file is allowed', async () => {
    assert(!allows('', 'https://store.example/a'));
    const none = new AllowedSources('', '--adapter-sources');
    await assert.rejects(none.requireFile('/etc/hostname'), UserError);
  });

  it('an address allows its own scheme, host and port, and nothing else', () => {
    const sources = 'https://store.example, http://10.0.0.7:9000';
    assert(allows(sources, 'https://store.example/any/path?signature=s'));
    assert(allows(sources, 'https://store.example:443/a'));
    assert(allows(sources, 'http://10.0.0.7:9000/a'));
    for (const other of [
      'http://store.example/a',
      'https://store.example:444/a',
      'https://store.example.evil/a',
      'https://evil-store.example/a',
      'https://a.store.example/a',
      'http://10.0.0.7/a',
      'https://169.254.169.254/latest/meta-data',
    ]) {
      assert(!allows(sources, other), other);
    }
  });

  it('a star stands for any subdomain, but not for the domain or a longer name', () => {
    const sources = 'https://*.store.example';
    assert(allows(sources, 'https://eu.store.example/a'));
    assert(allows(sources, 'https://a.b.store.example/a'));
    assert(!allows(sources, 'https://store.example/a'));
    assert(!allows(sources, 'https://evilstore.example/a'));
  });

  it('a path allows what is under it', () => {
    const sources = 'https://store.example/bucket-1,https://other.example/a/';
    assert(allows(sources, 'https://store.example/bucket-1'));
    assert(allows(sources, 'https://store.example/bucket-1/x'));
    assert(allows(sources, 'https://other.example/a/x'));
    for (const other of [
      'https://store.example/bucket-10/x',
      'https://store.example/',
      'https://store.example/bucket-1/../bucket-2/x',
      'https://store.example/bucket-1/%2e%2e/bucket-2/x',
      'https://other.example/a',
    ]) {
      assert(!allows(sources, other), other);
    }
  });

  it('the refusal names the place, the setting, its value and what to add', () => {
    const sources = new AllowedSources('https://store.example', '--adapter-sources');
    const url = new URL('https://other.example/a?signature=secret');
    assert.throws(
      () => {
        sources.requireAddress(url);
      },
      {
        message:
          'an adapter is at https://other.example, which is not among the sources that are allowed here: --adapter-sources is ' +
          'https://store.example. If you trust that place, add https://other.example, or https://other.example/PATH/ for a part of it',
      },
    );
  });

  it('a folder allows the files in it, but none that a link or a path leads to elsewhere', async () => {
    const base = await realpath(await mkdtemp(join(tmpdir(), 'offbeat-sources-')));
    try {
      const folder = join(base, 'adapters');
      await mkdir(join(folder, 'run'), { recursive: true });
      await mkdir(join(base, 'adapters-2'));
      const inside = join(folder, 'run', 'a');
      const outside = join(base, 'adapters-2', 'secret');
      for (const path of [inside, outside]) await writeFile(path, 'x');
      await symlink(inside, join(folder, 'good'));
      await symlink(outside, join(folder, 'bad'));
      await symlink(join(base, 'adapters-2'), join(folder, 'worse'));
      await symlink(folder, join(base, 'alias'));
      const sources = new AllowedSources(folder, '--adapter-sources');
      assert.equal(await sources.requireFile(inside), inside);
      assert.equal(await sources.requireFile(join(folder, 'good')), inside);
      const byAlias = new AllowedSources(join(base, 'alias'), '--adapter-sources');
      assert.equal(await byAlias.requireFile(join(base, 'alias', 'run', 'a')), inside);
      for (const path of [
        outside,
        join(folder, 'bad'),
        join(folder, 'worse', 'secret'),
        `${folder}/../adapters-2/secret`,
        folder,
        '/etc/passwd',
        join(base, 'none'), // does not exist; the error must not reveal that
      ]) {
        await assert.rejects(sources.requireFile(path), UserError, path);
      }
      await assert.rejects(
        sources.requireFile(join(folder, 'none')),
        /none cannot be read: ENOENT/,
      );
    } finally {
      await rm(base, { recursive: true, force: true });
    }
  });

  it('a setting that means nothing is refused', () => {
    for (const bad of [
      'store.example',
      'relative/folder',
      'ftp://store.example',
      'https://',
      'https://user@store.example',
      'https://store.example?a=b',
      'https://*.example',
      'https://a.*.example',
      'https://*',
      'https://store.example,,/mnt',
    ]) {
      assert(!adapterSources.safeParse(bad).success, bad);
    }
    for (const good of ['', '/mnt/adapters', 'https://*.store.example/a/, /mnt/x']) {
      assert(adapterSources.safeParse(good).success, good);
    }
  });
});

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { packageRoot } from '../../shared/base/package-root.js';

interface Locked {
  readonly version?: string;
  readonly integrity?: string;
  readonly hasInstallScript?: boolean;
}
interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly allowScripts: Readonly<Record<string, boolean>>;
}

const read = (name: string) => readFile(join(packageRoot, name), 'utf8');
const manifest = async () => JSON.parse(await read('package.json')) as Manifest;
const locked = async () => {
  const { packages } = JSON.parse(await read('package-lock.json')) as {
    packages: Record<string, Locked>;
  };
  return Object.entries(packages).filter(([path]) => path !== '');
};
const nameOf = (path: string) => path.replace(/^.*node_modules\//, '');

describe('the dependencies of the project', { timeout: 60_000 }, () => {
  it('dependencies have exact versions and content digests', async () => {
    const { dependencies, devDependencies } = await manifest();
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies })) {
      assert.match(version, /^\d+\.\d+\.\d+$/, name);
    }
    for (const [path, { integrity }] of await locked()) {
      assert.match(integrity ?? '', /^sha512-/, path);
    }
  });

  it('dependencies run no install scripts, and package.json lists each package that has one', async () => {
    assert.match(await read('.npmrc'), /^ignore-scripts=true$/m);
    const scripted = (await locked()).filter(([, { hasInstallScript }]) => hasInstallScript);
    const { allowScripts } = await manifest();
    assert.deepEqual(
      Object.keys(allowScripts).sort(),
      [...new Set(scripted.map(([path]) => nameOf(path)))].sort(),
    );
    assert(Object.values(allowScripts).every((isAllowed) => !isAllowed));
  });

  it('dependencies are listed by npm run sbom', async () => {
    const run = promisify(execFile);
    const { stdout } = await run('npm', ['run', '--silent', 'sbom'], {
      cwd: packageRoot,
      maxBuffer: 2 ** 26,
    });
    const bill = JSON.parse(stdout) as { components: { name: string; version: string }[] };
    const listed = new Set(bill.components.map(({ name, version }) => `${name}@${version}`));
    for (const [name, version] of Object.entries((await manifest()).dependencies)) {
      assert(listed.has(`${name}@${version}`), name);
    }
  });
});

import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { UserError } from '../../shared/base/errors.js';
import { executable } from '../cli/nats-server/fakes.js';
import { ensurePackages } from './packages.js';

describe('packages beside the environment', () => {
  let root: string;
  let cache: string;
  let pipCalls: string;

  /** A Python whose pip notes its arguments and then runs `then`, a shell text that has the target in $target. */
  const fakePython = (then: string) =>
    executable(
      join(root, 'python'),
      `#!/bin/sh
echo "$*" >> ${pipCalls}
while [ "$1" != --target ]; do shift; done
target="$2"
${then}
`,
    );
  const ensure = (python: string, requirements: readonly string[]) =>
    ensurePackages(
      { python, signal: new AbortController().signal, note: () => undefined },
      requirements,
      cache,
    );

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'offbeat-packages-'));
    [cache, pipCalls] = [join(root, 'cache'), join(root, 'pip-calls')];
  });
  afterEach(() => rm(root, { recursive: true }));

  it('packages are installed once for each list of requirements, without their dependencies', async () => {
    const python = await fakePython('mkdir "$target"');
    const folder = await ensure(python, ['tinker==0.38.0']);
    assert.equal(await ensure(python, ['tinker==0.38.0']), folder);
    assert.notEqual(await ensure(python, ['tinker==0.33.1']), folder);
    const calls = (await readFile(pipCalls, 'utf8')).trim().split('\n');
    assert.equal(calls.length, 2);
    assert.match(calls[0]!, /^-m pip install .*--no-deps .*--target .* tinker==0\.38\.0$/);
    assert.equal((await readdir(cache)).length, 2);
  });

  it('packages that pip cannot install are a UserError with its last line, and leave no folder', async () => {
    const python = await fakePython(
      'mkdir "$target"; echo "no route"; echo "no tinker==9"; exit 1',
    );
    await assert.rejects(ensure(python, ['tinker==9']), (error) => {
      assert(error instanceof UserError);
      assert.equal(error.message, 'pip cannot install tinker==9: no tinker==9');
      return true;
    });
    assert.deepEqual(await readdir(cache), []);
  });
});

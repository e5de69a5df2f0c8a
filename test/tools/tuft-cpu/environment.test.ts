import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import {
  ensurePythonEnvironment,
  type PythonEnvironmentOptions,
} from '../../../tools/tuft-cpu/environment.js';
import { UserError } from '../../../shared/base/errors.js';
import { executable } from '../../cli/nats-server/fakes.js';

describe('the Python environment', () => {
  let root: string;
  let cache: string;
  let requirements: string;
  let pipCalls: string;
  const reports: string[] = [];

  /** Nothing on this machine but what the test puts there. */
  const ensure = (options: Partial<PythonEnvironmentOptions> = {}) =>
    ensurePythonEnvironment({
      requirements: [requirements],
      env: {},
      folders: [join(root, 'bin')],
      cache,
      report: (line) => reports.push(line),
      timeoutMs: 20_000,
      ...options,
    });

  /** A python3 whose environments hold a pip that runs `pip`, a shell text. */
  const fakePython = (path: string, { version = '3 11', pip = 'exit 0' } = {}) =>
    executable(
      path,
      `#!/bin/sh
case "$1 $2" in
  "-c "*) echo "python ${version}";;
  "-m venv") mkdir -p "$3/bin" && printf '#!/bin/sh\\necho "$*" >> ${pipCalls}\\n${pip}\\n' > "$3/bin/python" &&
    chmod +x "$3/bin/python";;
  *) exit 1;;
esac
`,
    );

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'offbeat-python-'));
    [cache, pipCalls] = [join(root, 'cache'), join(root, 'pip-calls')];
    requirements = join(root, 'requirements.txt');
    await writeFile(requirements, 'numpy==2.4.6\n');
    reports.length = 0;
  });
  afterEach(() => rm(root, { recursive: true }));

  it('the Python environment is created once, of exactly the pinned packages, without resolving dependencies', async () => {
    await fakePython(join(root, 'bin/python3'));
    const python = await ensure();
    assert.match(python, new RegExp(`^${cache}/[0-9a-f]{16}/bin/python$`));
    assert.equal(await ensure(), python);
    const calls = (await readFile(pipCalls, 'utf8')).trim().split('\n');
    assert.equal(calls.length, 1);
    assert.match(calls[0]!, /^-m pip install .*--no-deps .*--requirement .*requirements\.txt$/);
    assert.equal(reports.length, 1);
  });

  it('the Python environment is created again if a pin changes', async () => {
    await fakePython(join(root, 'bin/python3'));
    const before = await ensure();
    await writeFile(requirements, 'numpy==2.4.7\n');
    assert.notEqual(await ensure(), before);
  });

  it('the Python environment takes torch from the index of CPU builds if the other indexes lack it', async () => {
    const pip =
      'case "$*" in *whl/cpu*) exit 0;; *) echo "No matching distribution found for torch"; exit 1;; esac';
    await fakePython(join(root, 'bin/python3'), { pip });
    await ensure();
    assert.match(await readFile(pipCalls, 'utf8'), /--extra-index-url https:\/\/download\.pytorch/);
  });

  it('the Python environment uses OFFBEAT_PYTHON, or else the first Python that is new enough', async () => {
    await fakePython(join(root, 'bin/python3'), { version: '3 10' });
    await fakePython(join(root, 'bin/python3.12'), { version: '3 12' });
    const found = await ensure();
    const named = await fakePython(join(root, 'mine'), { version: '3 13' });
    assert.notEqual(await ensure({ env: { OFFBEAT_PYTHON: named } }), found);
    await assert.rejects(
      ensure({ env: { OFFBEAT_PYTHON: join(root, 'bin/python3') } }),
      /OFFBEAT_PYTHON cannot be used: .*python3 is Python 3\.10; 3\.11 or newer is needed/,
    );
  });

  it('a Python environment that cannot be created is reported in a sentence and leaves no partial folder', async () => {
    const rejects = (message: RegExp, options: Partial<PythonEnvironmentOptions> = {}) =>
      assert.rejects(ensure(options), (error) => {
        assert(error instanceof UserError);
        assert.match(error.message, message);
        return true;
      });
    await rejects(/no python3 on PATH\. Install Python 3\.11 or newer .*OFFBEAT_PYTHON/);
    await executable(join(root, 'bin/python3'), '#!/bin/sh\necho no module ensurepip; exit 1\n');
    await rejects(/cannot create virtual environments: "no module ensurepip"/);
    await fakePython(join(root, 'bin/python3'), { pip: 'echo "no route to host"; exit 1' });
    await rejects(/pip could not install .*: no route to host \(required by .*requirements\.txt\)/);
    await fakePython(join(root, 'bin/python3'), { pip: 'exec sleep 60' });
    await rejects(/not done after 0\.05 min/, { timeoutMs: 3_000 });
    assert.deepEqual(await readdir(cache), []);
  });
});

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it, type TestContext } from 'node:test';
import { findExecutables, searchFolders } from '../../../cli/nats-server/binary.js';
import { runCommand } from '../../../cli/run-command.js';
import { fakeBundle, fakePackages } from './fakes.js';

interface Report {
  readonly machine: Record<string, unknown>;
  readonly runs: Record<string, { readonly figures: Record<string, unknown> }>;
  readonly problems: readonly string[];
}

describe('the script of the GPU test, with pretended programs', { timeout: 120_000 }, () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-gpu-test-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  /** Skips the test, and returns undefined, without a Python that is new enough. */
  const findPython = async (t: TestContext) => {
    const [python] = await findExecutables('python3', searchFolders(process.env['PATH']));
    const ask = ['-c', 'import sys; print("%d.%d" % sys.version_info[:2])'];
    const { output } = await runCommand(python ?? 'python3', ask, { timeoutMs: 20_000 });
    if (python !== undefined && /^3\.(?:1[1-9]|[2-9]\d)$/.test(output)) {
      return { python, version: output };
    }
    t.skip('no Python 3.11 or newer on PATH');
    return undefined;
  };

  const run = async (python: string, script: string, ...flags: string[]) => {
    const child = spawn(python, [script, '--steps=2', ...flags], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, PYTHONPATH: join(folder, 'packages') },
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
    }
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, output };
  };

  const readReport = async () =>
    JSON.parse(await readFile(join(folder, 'gpu-report.json'), 'utf8')) as Report;

  it('a Python of another version than that of the wheels is refused before anything runs, with the remedy', async (t) => {
    const found = await findPython(t);
    if (found === undefined) return;
    await fakePackages(join(folder, 'packages'), '0.32.0');
    const script = await fakeBundle(folder, { python: '3.99' });
    const { code, output } = await run(found.python, script);
    assert.equal(code, 1);
    const { version } = found;
    assert.equal(
      output,
      `this is Python ${version}, and the wheels of the bundle are for 3.99: use Python 3.99 ` +
        `(OFFBEAT_PYTHON names one), or pack again with --python ${version}\n`,
    );
  });

  for (const commit of ['abc-dirty', undefined]) {
    it(`the report names the host, and Offbeat by version and ${commit === undefined ? 'no commit if the bundle has none' : 'the commit of the bundle'}`, async (t) => {
      const found = await findPython(t);
      if (found === undefined) return;
      await fakePackages(join(folder, 'packages'), '0.32.0');
      const script = await fakeBundle(folder, { python: found.version, commit });
      const { output } = await run(found.python, script, '--vllm=no');
      assert.match(output, /^report: /m, output);
      const { machine } = await readReport();
      assert.equal(machine['host'], hostname());
      assert.deepEqual(machine['offbeat'], { version: '1.2.3', commit: commit ?? null });
    });
  }

  it('a model that is not made here trains on groups of equal rewards too, so one that solves nothing does not end its run', async (t) => {
    const found = await findPython(t);
    if (found === undefined) return;
    await fakePackages(join(folder, 'packages'), '0.32.0');
    const script = await fakeBundle(folder, { python: found.version });
    const { output } = await run(found.python, script, '--vllm=no');
    const path = 'gpu-test-work/tinker/runs/gpu/argv';
    const flags = (await readFile(join(folder, path), 'utf8').catch(() => output)).split(' ');
    assert(flags.includes('--zero-variance=train'), flags.join(' '));
    assert(!flags.some((flag) => flag.startsWith('--entropy-bonus')));
  });

  for (const flag of ['--vllm=only', '--canary-faults=bf16']) {
    it(`${flag} is refused where there is no vLLM, with the remedy`, async (t) => {
      const found = await findPython(t);
      if (found === undefined) return;
      await fakePackages(join(folder, 'packages'));
      const script = await fakeBundle(folder, { python: found.version });
      const { code, output } = await run(found.python, script, flag);
      assert.equal(code, 1);
      const [name] = flag.replace('=only', ' only').split('=');
      assert.match(output, new RegExp(`^${name} needs a GPU and a Python with vLLM .* leave`, 'm'));
    });
  }

  it('a random model is not sampled with vLLM, which could not prove its versions', async (t) => {
    const found = await findPython(t);
    if (found === undefined) return;
    await fakePackages(join(folder, 'packages'), '0.32.0');
    const script = await fakeBundle(folder, { python: found.version });
    const { code, output } = await run(found.python, script, '--shape=0.6b', '--vllm=only');
    assert.equal(code, 2);
    assert.match(output, /--vllm only needs --model-dir: vLLM shows too few tokens/);
  });

  for (const { vllm, hasFlag } of [
    { vllm: '0.24.0', hasFlag: false },
    { vllm: '0.29.1+cu128', hasFlag: false },
    { vllm: '0.30.0rc1', hasFlag: true },
    { vllm: '1.0.0', hasFlag: true },
  ]) {
    it(`vLLM ${vllm} is started ${hasFlag ? 'with' : 'without'} --enable-scale-out; as it fails, the report has the reason and the figures of the other run`, async (t) => {
      const found = await findPython(t);
      if (found === undefined) return;
      await fakePackages(join(folder, 'packages'), vllm);
      const script = await fakeBundle(folder, { python: found.version });
      const { code, output } = await run(found.python, script);
      assert.equal(code, 1, output);
      assert.match(output, /^report: /m, output);
      const { runs, problems } = await readReport();
      assert.deepEqual(Object.keys(runs), ['tinker']);
      assert.equal(runs['tinker']!.figures['stepSecondsMedian'], 2.5);
      const reason = problems.find((problem) => problem.startsWith('vllm: '))!;
      assert.match(
        reason,
        /^vllm: vllm did not start; .*\n.*no room for .*--enable-lora .*--lora-target-modules q_proj/,
      );
      assert.equal(reason.includes('--enable-scale-out'), hasFlag);
      assert(output.includes(reason));
    });
  }
});

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findExecutables, searchFolders } from '../../cli/nats-server/binary.js';
import { runCommand } from '../../cli/run-command.js';
import { UserError } from '../../shared/base/errors.js';
import { pack } from '../../tools/gpu-test/pack.js';
import type { SuiteContext } from './suite.js';

/** All that the bundle may find on the PATH of its machine, besides Python. */
const tools = ['bash', 'sh', 'dirname'];

/**
 * Packs the GPU test and runs it from the pieces on this CPU, in its smallest form, where nothing but Python with torch and
 * transformers is to be found: no Node.js, no nats-server, no package of this project.
 */
export async function testGpuBundle(context: SuiteContext): Promise<void> {
  const { folder, python, signal, step, note } = context;
  const bundle = join(folder, 'gpu-bundle');
  const { output: version } = await runCommand(
    python,
    ['-c', 'import sys; print("%d.%d" % sys.version_info[:2])'],
    { timeoutMs: 20_000, signal },
  );
  const natsServer = process.env['OFFBEAT_NATS_SERVER']!; // set by cli/bootstrap.mjs
  const { pieces } = await pack({ folder: bundle, python: version, natsServer, report: note });
  await step('the largest piece, in MB', '< 64', () => {
    const largest = Math.max(...pieces.map(({ bytes }) => bytes)) / 1e6;
    assert(largest < 64);
    return Number(largest.toFixed(1));
  });

  const path = join(folder, 'bare-path');
  await mkdir(path);
  await symlink(python, join(path, 'python3'));
  for (const name of tools) {
    const [found] = await findExecutables(name, searchFolders(process.env['PATH']));
    if (found === undefined) throw new UserError(`there is no ${name} on the PATH`);
    await symlink(found, join(path, name));
  }
  const run = async (...flags: string[]) => {
    const child = spawn(join(bundle, 'run'), flags, {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: path, HOME: folder, OFFBEAT_PYTHON: python },
      signal,
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
    }
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, output };
  };

  for (const { model, flags, largestKl } of [
    { model: 'the small model', flags: [], largestKl: 1e-6 },
    // In bfloat16, which TuFT's logprobs are rounded to; it hardly ever draws the tokens of its canary.
    { model: 'a random model', flags: ['--shape=tiny', '--max-tokens=16'], largestKl: 0.01 },
  ]) {
    await step(`trained ${model} without Node.js on the PATH`, 'exit code 0', async () => {
      const small = ['--steps=8', '--groups-per-batch=4', '--group-size=4', '--actors=1'];
      const where = ['--vllm=no', '--work=work', '--out=report.json'];
      const { code, output } = await run(...small, ...where, ...flags);
      assert.equal(code, 0, output.slice(-3_000));
      return code;
    });
    const report = JSON.parse(await readFile(join(folder, 'report.json'), 'utf8')) as {
      readonly runs: {
        readonly tinker: {
          readonly figures: Record<string, number> & {
            readonly peakHostBytes: Record<string, number>;
          };
        };
      };
      readonly problems: readonly string[];
    };
    const { figures } = report.runs.tinker;
    await step(`the report on ${model}`, 'complete', () => {
      assert.deepEqual(report.problems, []);
      for (const key of measured) assert(Number.isFinite(figures[key]), key);
      assert(figures.peakHostBytes['tuft']! > 0);
      return `${measured.length + 1} figures`;
    });
    const bound = `< ${largestKl}`;
    await step(`KL from sampler to trainer at staleness 0, ${model}`, bound, () => {
      assert(figures['klAtStaleness0']! < largestKl);
      return figures['klAtStaleness0']!.toExponential(1);
    });
  }
  await step('a piece with a wrong byte', 'refused by name', async () => {
    const first = join(bundle, pieces[0]!.name);
    const bytes = await readFile(first);
    bytes[bytes.length >> 1]! ^= 1;
    await writeFile(first, bytes);
    await writeFile(join(bundle, 'bundle/.complete'), 'of another bundle');
    const { code, output } = await run('--help');
    assert.equal(code, 1);
    assert.match(output, /piece-0\.bin is damaged/);
    return 'refused';
  });
}

const measured = [
  ...['stepSecondsMedian', 'endToEndTokensPerSecond', 'trainingTokensPerSecond'],
  ...['learnerIdleShare', 'klAtStaleness0', 'publishToFirstTokenSeconds', 'adapterBytes'],
  ...['adapterDownloadSeconds', 'samplingTokensPerSecondOfAnActor'],
] as const;

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

  await step('trained from the pieces, without Node.js on the PATH', 'exit code 0', async () => {
    const small = ['--steps=3', '--groups-per-batch=4', '--group-size=4', '--actors=1'];
    const { code, output } = await run(...small, '--vllm=no', '--work=work', '--out=report.json');
    assert.equal(code, 0, output.slice(-3_000));
    return code;
  });
  const report = JSON.parse(await readFile(join(folder, 'report.json'), 'utf8')) as {
    readonly runs: { readonly tinker: { readonly figures: Record<string, number> } };
    readonly problems: readonly string[];
  };
  const { figures } = report.runs.tinker;
  await step('its report', 'complete', () => {
    assert.deepEqual(report.problems, []);
    for (const key of measured) assert(Number.isFinite(figures[key]), key);
    return `${measured.length} figures`;
  });
  await step('KL from sampler to trainer at staleness 0, nats a token', '< 1e-6', () => {
    assert(figures['klAtStaleness0']! < 1e-6);
    return figures['klAtStaleness0']!.toExponential(1);
  });
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

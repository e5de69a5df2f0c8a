import { mkdir, readFile } from 'node:fs/promises';
import { availableParallelism, loadavg } from 'node:os';
import { join } from 'node:path';
import { median } from '../../shared/base/statistics.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { startBackendProcess } from './backend-process.js';
import { runPython, type SuiteContext } from './suite.js';
import { apiKey, TuftServer } from './tuft/tuft-server.js';

interface Server extends AsyncDisposable {
  readonly env: NodeJS.ProcessEnv;
}

const recipe = '../../tools/cookbook/countdown.py';
const threads = 2;

/**
 * The cookbook's Countdown recipe with the same seed and the same number of steps, by turns on the local backend and on
 * TuFT with its transformers backend, each alone on the machine. The seconds of a step are what the cookbook logs.
 */
export async function testCookbookSpeed(context: SuiteContext): Promise<void> {
  const { isShort, report, note } = context;
  const [pairs, steps] = isShort ? [1, 2] : [3, 5];
  const servers = { 'local backend': startLocal, TuFT: startTuft };
  const medians: Record<string, number[]> = {};
  for (let pair = 1; pair <= pairs; pair++) {
    for (const [name, start] of Object.entries(servers)) {
      const folder = join(context.folder, `${pair}-${name.replace(' ', '-')}`);
      await mkdir(folder);
      const [load] = loadavg();
      const seconds = await trainOn({ ...context, folder }, start, steps);
      // The first step also waits for threads and memory.
      const typical = median(seconds.slice(1));
      (medians[name] ??= []).push(typical);
      note(`  ${name}: ${typical.toFixed(2)} s a step (load before it ${load!.toFixed(1)})`);
      const check = `${name}, run ${pair}: steps`;
      report({ check, value: seconds.length, bound: `${steps}`, passed: seconds.length === steps });
    }
  }
  for (const [name, values] of Object.entries(medians)) {
    const [least, most] = [Math.min(...values), Math.max(...values)].map((one) => one.toFixed(2));
    const bound = `measured: ${least} to ${most} on ${availableParallelism()} cores`;
    const value = median(values).toFixed(2);
    report({
      check: `${name}: seconds a step, median of ${pairs} runs`,
      value,
      bound,
      passed: true,
    });
  }
}

async function trainOn(
  context: SuiteContext,
  start: (context: SuiteContext) => Promise<Server>,
  steps: number,
): Promise<number[]> {
  await using server = await start(context);
  const log = join(context.folder, 'log');
  const settings = [`steps=${steps}`, `log_path=${log}`, 'held_out=16'];
  await runPython(context, recipe, settings, server.env);
  const rows = (await readFile(join(log, 'metrics.jsonl'), 'utf8')).trim().split('\n');
  return rows
    .map((row) => JSON.parse(row) as Record<string, number | undefined>)
    .flatMap((row) => row['time/total'] ?? []);
}

function startLocal(context: SuiteContext): Promise<Server> {
  return startBackendProcess(context, embeddedModelPath);
}

async function startTuft(context: SuiteContext): Promise<Server> {
  const server = await TuftServer.start(context, [
    ...[`--model-dir=${embeddedModelPath}`, `--threads=${threads}`, '--sampling'],
    '--micro-batch-size=64',
  ]);
  const env = { TINKER_BASE_URL: server.url, TINKER_API_KEY: apiKey, HF_HUB_OFFLINE: '1' };
  return { env, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

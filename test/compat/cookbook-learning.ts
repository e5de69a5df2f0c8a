import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { createRandom } from '../../shared/base/random.js';
import { offbeatProgram, packageRoot } from '../../shared/base/package-root.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { openTask, TaskSettings, taskSpec } from '../../shared/tasks/registry.js';
import type { Problem } from '../../shared/tasks/countdown/problem.js';
import { lognormalSeconds } from '../../tools/simulate/trace.js';
import { startBackendProcess, type BackendProcess } from './backend-process.js';
import { ensurePackages, pathOf } from './packages.js';
import { startPacedServer } from './paced-server.js';
import { type Race, raceRatios, racesIn, raceTable, Step } from './race-table.js';
import { compatFolder, type SuiteContext } from './suite.js';

/** The server of the simulated loop (docs/performance.md), four times as fast. */
const pace = {
  slots: 128,
  answerSeconds: lognormalSeconds(0.5, 1),
  stepSeconds: 0.85,
};
const groups = 8;
const groupSize = 16;
const loraRank = 32;

/** A system with its settings. */
type Arm = Pick<Race, 'system' | 'bound' | 'loss' | 'learningRate' | 'schedule' | 'windowPolicy'>;

interface Place extends Arm {
  readonly url: string; // of the paced server
  readonly backend: BackendProcess;
  readonly problems: string; // file
  readonly folder: string;
  readonly seed: number;
  readonly minutes: number;
}

/**
 * Offbeat and the newest cookbook train the embedded model on problems that it was not made for, by turns, each for the same time
 * and on the same server, whose answers have a long tail. Every run begins with a new backend.
 */
export async function testCookbookLearning(context: SuiteContext): Promise<void> {
  const { isShort, note, report, folder } = context;
  const packages = await ensurePackages(context, ['tinker==0.38.0', 'tinker-cookbook==0.6.1']);
  const minutes = isShort ? 0.75 : 6;
  const bound = 8;
  // Its default loss needs a server that records what its sampler did; for others it recommends ppo.
  const same = { bound, loss: 'cispo', learningRate: 1e-3 };
  const withoutWaiting = { schedule: 'constant', windowPolicy: 'drop' };
  const seedsOf = new Map<Arm, readonly number[]>([
    [{ system: 'offbeat', ...same }, [0, 1, 2, 3, 4, 5, 6]],
    [{ system: 'offbeat', ...same, ...withoutWaiting }, [7, 8, 9]],
    [{ system: 'cookbook', ...same }, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]],
    [{ system: 'cookbook', bound, loss: 'ppo', learningRate: 2e-3 }, [0, 1, 2]],
  ]);
  const kept = isShort ? join(folder, 'races.jsonl') : await keptFile();
  const races = racesIn(await readFile(kept, 'utf8').catch(() => ''));
  const lastSeed = isShort ? 0 : Math.max(...[...seedsOf.values()].flat());
  for (let seed = 0; seed <= lastSeed; seed++) {
    const problems = join(folder, `problems-${seed}.jsonl`);
    await writeFile(problems, await problemLines(seed));
    for (const [arm, seeds] of seedsOf) {
      if (!seeds.includes(seed)) continue;
      const name = nameOf(arm);
      if (races.some((race) => race.seed === seed && nameOf(race) === name)) continue;
      const place = { ...arm, seed, minutes, problems, folder: join(folder, `${name}-${seed}`) };
      await mkdir(place.folder);
      await using backend = await startBackendProcess({ ...context, ...place }, embeddedModelPath);
      await using server = await startPacedServer(backend.url, pace);
      const there = { ...place, backend, url: server.url };
      const steps = await (arm.system === 'offbeat'
        ? offbeat(context, there)
        : cookbook(context, packages, there));
      const race = { ...arm, seed, minutes, steps };
      races.push(race);
      await writeFile(kept, races.map((each) => `${JSON.stringify(each)}\n`).join(''));
      note(`  ${name}, seed ${seed}: ${steps.length} steps`);
    }
  }
  for (const { seed, steps, ...race } of races) {
    const check = `${nameOf(race)}, seed ${seed}: steps`;
    report({ check, value: steps.length, bound: '≥ 1', passed: steps.length > 0 });
  }
  note(raceTable(races));
  note(raceRatios(races));
}

/** Also part of a folder's name. */
function nameOf({ system, bound, loss, learningRate, schedule, windowPolicy }: Arm): string {
  const settings = [bound, loss, learningRate, schedule, windowPolicy];
  return [system, ...settings.filter((setting) => setting !== undefined)].join('-');
}

/** The results stay in the checkout, so that a run that was interrupted goes on. */
async function keptFile(): Promise<string> {
  const folder = join(packageRoot, 'sweeps/cookbook-learning');
  await mkdir(folder, { recursive: true });
  return join(folder, 'races.jsonl');
}

/** The problems of `npm start` that the model was not made for, in an order of the seed. */
async function problemLines(seed: number): Promise<string> {
  const spec = await taskSpec(TaskSettings.parse({ rehearsalShare: 0 }));
  const { train } = await openTask(spec).load();
  const rows = Array.from({ length: train.length }, (_, index) => {
    const { numbers, target } = train[index] as unknown as Problem;
    return JSON.stringify({ nums: numbers, target });
  });
  return `${createRandom(`${seed} problems`).shuffle(rows).join('\n')}\n`;
}

async function offbeat({ signal }: SuiteContext, place: Place): Promise<Race['steps']> {
  const { url, backend, problems, folder, seed, minutes } = place;
  const { bound, loss, learningRate, schedule, windowPolicy } = place;
  const startedAt = Date.now();
  const flags = {
    run: 'race',
    'runs-dir': folder,
    'backend-url': url,
    'api-key': backend.apiKey,
    'model-dir': embeddedModelPath,
    'model-name': embeddedModelPath,
    sampler: 'tinker',
    dataset: problems,
    'test-size': 1,
    'eval-problems': 0,
    shaping: 'none',
    'stop-reward-share': 0,
    'groups-per-batch': groups,
    'group-size': groupSize,
    'num-minibatches': 1,
    loss,
    'learning-rate': learningRate,
    'lora-rank': loraRank,
    'max-steps-off-policy': bound,
    seed: seed,
    'max-minutes': minutes,
    ...(schedule === undefined ? {} : { schedule }),
    ...(windowPolicy === undefined ? {} : { 'window-policy': windowPolicy }),
  };
  const words = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);
  await output(process.execPath, [offbeatProgram, 'up', '--no-dashboard', ...words], {}, signal);
  const lines = (await readFile(join(folder, 'race/metrics.jsonl'), 'utf8')).trim().split('\n');
  const Row = z.looseObject({
    time: z.iso.datetime(),
    'scored/rollouts': z.int(),
    'env/all/correct': z.number(),
    'staleness/mean': z.number(),
  });
  return lines.map((line) => {
    const row = Row.parse(JSON.parse(line));
    const answers = row['scored/rollouts'];
    return {
      seconds: (Date.parse(row.time) - startedAt) / 1_000,
      answers,
      right: Math.round(answers * row['env/all/correct']),
      staleness: row['staleness/mean'],
    };
  });
}

async function cookbook(
  { python, signal }: SuiteContext,
  packages: string,
  { url, backend, problems, bound, loss, learningRate, minutes }: Place,
): Promise<Race['steps']> {
  const startedAt = performance.now();
  const settings = { problems, minutes, bound, groups, group_size: groupSize };
  const more = { learning_rate: learningRate, lora_rank: loraRank, loss, bounds: boundsOf(loss) };
  const args = [join(compatFolder, 'cookbook/race.py'), JSON.stringify({ ...settings, ...more })];
  const env = { ...backend.env, ...pathOf(packages), TINKER_BASE_URL: url };
  const steps: Race['steps'] = [];
  await output(python, args, env, signal, (line) => {
    if (!line.startsWith('{')) return;
    const seconds = (performance.now() - startedAt) / 1_000;
    steps.push(Step.parse({ ...(JSON.parse(line) as object), seconds }));
  });
  return steps;
}

/** The bounds of the ratio that Offbeat sends with its loss; the cookbook sends none by itself, and servers differ. */
function boundsOf(loss: string): Readonly<Record<string, number>> | null {
  return loss === 'cispo' ? { clip_low_threshold: 0, clip_high_threshold: 4 } : null;
}

/** Runs a program to its end. @throws if it does not end with 0. */
async function output(
  file: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  signal: AbortSignal,
  onLine: (line: string) => void = () => undefined,
): Promise<void> {
  const child = spawn(file, args, {
    env: { ...process.env, PYTHONUNBUFFERED: '1', PYTHONDONTWRITEBYTECODE: '1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    signal,
  });
  createInterface(child.stdout).on('line', onLine);
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors = (errors + chunk.toString()).slice(-4_000)));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`${args[0]!} ended with ${code ?? 'a signal'}: ${errors}`);
}

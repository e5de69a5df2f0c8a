import type { z } from 'zod';
import { UserError } from '../../shared/base/errors.js';
import { kebab } from '../../shared/service/config.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { sourceOf } from '../../shared/tasks/data/data.js';
import type { TaskProblem } from '../../shared/tasks/dataset.js';
import { checkTask, openTask, TaskSettings, taskSpec } from '../../shared/tasks/registry.js';
import { countTrained } from '../trained-problems.js';

const { dataset, datasetSeed, testSize, numbers, minNumber, maxNumber, minTarget, maxTarget } =
  TaskSettings.shape;

/** Flags that choose other problems than those that the run holds out. They mean what they mean for a run. */
export const problemFlags = {
  dataset: dataset.describe(
    "other problems than the run's: a file *.jsonl, *.csv or *.parquet, OWNER/NAME on the Hugging Face hub, or " +
      'generator. What the following flags leave out is as in a new run.',
  ),
  datasetSeed: datasetSeed
    .unwrap()
    .optional()
    .describe('other problems: seed of the generator, or of the order of a file.'),
  testSize: testSize.unwrap().optional().describe('other problems: how many are held out.'),
  numbers,
  minNumber,
  maxNumber,
  minTarget,
  maxTarget,
};
type ProblemFlags = z.infer<z.ZodObject<typeof problemFlags>>;

/** The held-out problems that are measured. */
interface Measured {
  readonly problems?: number | undefined; // all that are left
  readonly skipProblems?: number; // none
}

/**
 * The run's configuration with the problems that the flags choose, its own if they choose none. Prompt and
 * reward stay as they are.
 *
 * @param warn says what was not compared with them.
 * @throws {UserError} if the flags contradict each other, the problems cannot be read, or the run was trained on some of them.
 */
export async function withProblems(
  config: RunConfig,
  flags: ProblemFlags & Measured,
  warn: (text: string) => void,
): Promise<RunConfig> {
  const given = Object.fromEntries(
    Object.keys(problemFlags)
      .map((key) => [key, flags[key as keyof ProblemFlags]] as const)
      .filter(([, value]) => value !== undefined),
  );
  if (Object.keys(given).length === 0) return config;
  refuseSilentGenerator(config, given);
  const settings = TaskSettings.parse({ task: config.task.name, ...given });
  const complaints: string[] = [];
  checkTask(settings, (key, message) => complaints.push(`--${kebab(key)}: ${message}`));
  if (complaints.length > 0) throw new UserError(complaints.join('\n'));
  const { dataset: chosen } = await taskSpec(settings);
  const task = { ...config.task, dataset: chosen } as RunConfig['task'];
  const { digest, test } = await openTask(task).load();
  await refuseTrained(config, measuredOf(test, flags), warn);
  return { ...config, task, datasetDigest: digest };
}

/** A size or a seed alone means the run's own data, but what they leave out is as in a new run: generated problems. */
function refuseSilentGenerator(
  { run, task: { dataset } }: RunConfig,
  given: Readonly<Record<string, unknown>>,
): void {
  const alone = Object.keys(given).every((key) => key === 'testSize' || key === 'datasetSeed');
  if (!alone || dataset.kind === 'generator') return;
  const flags = Object.keys(given).map((key) => `--${kebab(key)}`);
  throw new UserError(
    `${flags.join(' and ')} alone would choose generated problems, and run ${run} has those of ${sourceOf(dataset)}; ` +
      `add --dataset to choose other problems, or remove ${flags.length === 1 ? 'it' : 'them'} and choose how many with --problems`,
  );
}

function measuredOf(
  test: readonly TaskProblem[],
  { problems, skipProblems = 0 }: Measured,
): readonly TaskProblem[] {
  return test.slice(skipProblems, problems === undefined ? undefined : skipProblems + problems);
}

/**
 * @param warn says what was not compared.
 * @throws {UserError} if the run was trained on some of the chosen problems.
 */
async function refuseTrained(
  config: RunConfig,
  chosen: readonly TaskProblem[],
  warn: (text: string) => void,
): Promise<void> {
  const run = `run ${config.run}`;
  const { trained, heldOut, notCompared } = await countTrained(run, config, chosen);
  for (const text of notCompared) warn(text);
  if (trained === 0) return;
  throw new UserError(
    `${run} was trained on ${trained} of the ${chosen.length} chosen problems, so they do not measure what it can do ` +
      `on problems that it has not seen. It holds out ${heldOut} of its own problems, which are measured without flags that ` +
      'choose others; or choose others that it was not trained on',
  );
}

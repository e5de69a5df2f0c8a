import type { z } from 'zod';
import { UserError } from '../../shared/base/errors.js';
import { kebab } from '../../shared/service/config.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { checkTask, openTask, TaskSettings, taskSpec } from '../../shared/tasks/registry.js';

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

/**
 * The run's configuration with the problems that the flags choose, its own if they choose none. Prompt and
 * reward stay as they are.
 *
 * @throws {UserError} if the flags contradict each other or the problems cannot be read.
 */
export async function withProblems(config: RunConfig, flags: ProblemFlags): Promise<RunConfig> {
  const given = Object.fromEntries(
    Object.keys(problemFlags)
      .map((key) => [key, flags[key as keyof ProblemFlags]] as const)
      .filter(([, value]) => value !== undefined),
  );
  if (Object.keys(given).length === 0) return config;
  const settings = TaskSettings.parse({ task: config.task.name, ...given });
  const complaints: string[] = [];
  checkTask(settings, (key, message) => complaints.push(`--${kebab(key)}: ${message}`));
  if (complaints.length > 0) throw new UserError(complaints.join('\n'));
  const { dataset: chosen } = await taskSpec(settings);
  const task = { ...config.task, dataset: chosen } as RunConfig['task'];
  const { digest } = await openTask(task).load();
  return { ...config, task, datasetDigest: digest };
}

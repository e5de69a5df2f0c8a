import { z } from 'zod';
import { httpAddress, number, string, int } from '../../shared/service/config-fields.js';
import { type Environment, loadConfig } from '../../shared/service/config.js';
import { whichRun } from '../existing-run/find-run.js';
import { problemFlags } from './other-problems.js';
import { keyOf, processSettings } from '../up/up-config.js';

/** Which version of which run to measure, and how. */
export const EvalConfig = z.object({
  ...whichRun,
  version: z
    .union([z.enum(['best', 'latest']), int.min(0)], {
      error: 'expected best, latest or the number of a version',
    })
    .default('latest')
    .describe(
      'best (of those that were evaluated), latest, or the number of a version that is kept or saved.',
    ),
  problems: int.positive().optional().describe('held-out problems; by default all that are left.'),
  samples: int
    .positive()
    .max(4096)
    .default(4)
    .describe('sampled answers to each; one more is greedy.'),
  temperature: number
    .positive()
    .optional()
    .describe('temperature of the sampled answers; by default that of training.'),
  ...problemFlags,
  skipProblems: int
    .nonnegative()
    .default(0)
    .describe('first held-out problems to leave out, such as those that chose the settings.'),
  actors: processSettings.actors
    .unwrap()
    .optional()
    .describe('number of actor processes; by default 2, with --sampler vllm or sglang 1.'),
  sampler: processSettings.sampler
    .optional()
    .describe(
      'where actors sample: in their own processes, on the backend, or on --engine-url; by default as the run did.',
    ),
  engineUrl: processSettings.engineUrl,
  modelDir: string.optional().describe("Hugging Face directory of the run's model."),
  backendUrl: httpAddress
    .optional()
    .describe('the Tinker server that the run trains on, if not its own local backend.'),
  apiKey: processSettings.apiKey,
  readySeconds: processSettings.readySeconds,
  json: z
    .boolean()
    .default(false)
    .describe('the last line of standard output is the result as JSON, with each problem.'),
});
export type EvalConfig = z.infer<typeof EvalConfig>;

/** `offbeat-eval` rather than `eval`, since environment variables begin with it: OFFBEAT_EVAL_RUN. */
export const evalService = 'offbeat-eval';

/** @throws {UserError} listing every problem at once. */
export function loadEvalConfig(argv: readonly string[], env: Environment): EvalConfig {
  const config = loadConfig(EvalConfig, evalService, argv, env);
  return { ...config, apiKey: keyOf(config, env) };
}

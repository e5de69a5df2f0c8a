import { z } from 'zod';
import { string } from '../../shared/service/config-fields.js';
import { type Environment, flagsOf, loadConfig } from '../../shared/service/config.js';
import { UserError } from '../../shared/base/errors.js';
import { refuseFlagsKeptByNpm } from '../../shared/service/npm-flags.js';

/** How to make an experiment; what it is, its file says. */
export const SweepConfig = z.object({
  out: string.optional().describe('folder of results and report; sweeps/<its name>.'),
  short: z.boolean().default(false).describe("the file's short form: a trial of the whole."),
  dryRun: z.boolean().default(false).describe('list the runs and make none.'),
  report: z.boolean().default(false).describe('only the report, of the results that are there.'),
  keepRuns: z
    .boolean()
    .default(false)
    .describe('keep streams and weights of finished runs, so that offbeat eval can use them.'),
});
export type SweepConfig = z.infer<typeof SweepConfig> & { readonly file: string };

/** `offbeat-sweep` rather than `sweep` in names of the environment: OFFBEAT_SWEEP_OUT. */
export const sweepService = 'offbeat-sweep';

/** @throws {UserError} listing every problem at once. */
export function loadSweepConfig(argv: readonly string[], env: Environment): SweepConfig {
  refuseFlagsKeptByNpm('sweep', flagsOf(SweepConfig.shape), argv, env);
  const [file, ...flags] = argv;
  if (file === undefined || file.startsWith('-')) {
    throw new UserError(
      `offbeat sweep: the first word is the file of the experiment${file === undefined ? '' : `, not ${file}`}; there are some in docs/experiments`,
    );
  }
  return { ...loadConfig(SweepConfig, sweepService, flags, env), file };
}

import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { string } from '../../shared/service/config-fields.js';
import { makeOutputFolder } from '../../shared/base/make-folder.js';
import { loadConfig, type Environment } from '../../shared/service/config.js';
import { describeFlags } from '../../shared/service/config-help.js';
import { errorText, UserError } from '../../shared/base/errors.js';
import { RunName } from '../../shared/wire/run-name.js';
import { readJournal, stepRow, type StepRow } from '../read-journal.js';
import { runFolderAt, runsIn, unknownRun } from '../run-folder.js';
import { eventFile, eventFileName, isEventFile } from './tensorboard.js';
import { csvLines, inBlocks, wandbHistory } from './text-formats.js';

export const ExportConfig = z.object({
  run: RunName.describe('the run whose metrics.jsonl is exported; it may still be training.'),
  format: z
    .enum(['tensorboard', 'wandb', 'csv'])
    .describe('tensorboard: an event file; wandb: a history as JSON lines, and the configuration.'),
  out: string
    .optional()
    .describe('folder for the files; by default exports/FORMAT in that of the run.'),
  runsDir: string.default('runs').describe('where the folders of the runs are.'),
});

export const exportService = 'offbeat-export';

export function exportHelp(): string {
  return `offbeat export: the metrics of a run for other tools.

${describeFlags(ExportConfig.shape, exportService)}
`;
}

/**
 * Writes the files, replacing those of an earlier export, and returns the exit code.
 *
 * @throws {UserError} for an unknown run, one without a step, or a folder that cannot be written.
 */
export async function exportRun(argv: readonly string[], env: Environment): Promise<number> {
  const { run, format, out, runsDir } = loadConfig(ExportConfig, exportService, argv, env);
  const runs = await runsIn(runsDir);
  if (!runs.includes(run)) throw new UserError(unknownRun(run, runsDir, runs));
  const { path } = runFolderAt(runsDir, run);
  const rows = await readJournal(path, 'metrics.jsonl', stepRow);
  if (rows.length === 0) throw new UserError(`run ${run} has no step yet`);
  const folder = out ?? join(path, 'exports', format);
  await makeOutputFolder(folder, '--out');
  const name = await write[format](rows, {
    folder,
    isOwn: out === undefined,
    config: join(path, 'config.json'),
  });
  process.stdout.write(`${rows.length} steps in ${join(folder, name)}\n`);
  return 0;
}

interface Place {
  readonly folder: string;
  readonly isOwn: boolean; // it only has exports of this run
  readonly config: string; // the file of the run's configuration
}

type Writer = (rows: readonly StepRow[], place: Place) => Promise<string>;

/** By format: writes its files and returns the name of the one with the steps. */
const write: Readonly<Record<z.infer<typeof ExportConfig>['format'], Writer>> = {
  async tensorboard(rows, { folder, isOwn }) {
    const name = eventFileName(rows);
    await writeFile(join(folder, name), eventFile(rows));
    // An earlier export has another name if the first step was trained again, and TensorBoard would show both.
    const others = isOwn ? (await readdir(folder)).filter(isEventFile) : [];
    for (const other of others) if (other !== name) await rm(join(folder, other));
    return name;
  },
  async wandb(rows, { folder, config }) {
    const text = await readFile(config, 'utf8').catch((cause: unknown) => {
      throw new UserError(
        `cannot read ${config} (${errorText(cause)}), which is the run's configuration for wandb; copy it there, or choose --format csv`,
        { cause },
      );
    });
    await writeFile(join(folder, 'config.json'), text);
    await writeFile(join(folder, 'history.jsonl'), inBlocks(wandbHistory(rows)));
    return 'history.jsonl';
  },
  async csv(rows, { folder }) {
    await writeFile(join(folder, 'metrics.csv'), inBlocks(csvLines(rows)));
    return 'metrics.csv';
  },
};

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  embeddedDataset,
  generateProblems,
  type SolvedProblem,
} from '../../shared/tasks/countdown/generator.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { startBackendProcess } from './backend-process.js';
import { runPython, type SuiteContext } from './suite.js';

const heldOut = 512;

/** The cookbook's RL loop, in asynchronous mode, trains the embedded model on its own problems. */
export async function testCookbook(context: SuiteContext): Promise<void> {
  const problems = generateProblems({ ...embeddedDataset, trainSize: 1_024 });
  const [training, test] = ['training.jsonl', 'held-out.jsonl'].map((name) =>
    join(context.folder, name),
  ) as [string, string];
  await writeLines(test, problems.test.slice(0, heldOut));
  await writeLines(training, problems.train);

  await using backend = await startBackendProcess(context, embeddedModelPath);
  const args = [embeddedModelPath, training, test, context.isShort ? '4' : '12'];
  await runPython(context, 'cookbook/main.py', args, backend.env);
}

function writeLines(path: string, problems: readonly SolvedProblem[]): Promise<void> {
  const rows = problems.map(({ problem: { target, numbers } }) => ({ target, numbers }));
  return writeFile(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
}

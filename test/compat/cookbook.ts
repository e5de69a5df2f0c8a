import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  generateProblems,
  pretrainedProblems,
  type SolvedProblem,
} from '../../shared/tasks/countdown/generator.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { startBackendProcess } from './backend-process.js';
import { ensurePackages, pathOf } from './packages.js';
import { runPython, type SuiteContext } from './suite.js';

const heldOut = 512;

/**
 * The cookbook's RL loop, in asynchronous mode, trains the embedded model on the kind of problem that it
 * knows: its few steps sharpen what is there, and would not show that anything new is learned.
 *
 * @param packages a folder with another cookbook and SDK than those of the environment (ensurePackages).
 */
export async function testCookbook(context: SuiteContext, packages?: string): Promise<void> {
  const size = { testSize: heldOut, trainSize: 1_024 };
  const problems = generateProblems({ kind: 'generator', seed: 1, ...pretrainedProblems, ...size });
  const [training, test] = ['training.jsonl', 'held-out.jsonl'].map((name) =>
    join(context.folder, name),
  ) as [string, string];
  await writeLines(test, problems.test.slice(0, heldOut));
  await writeLines(training, problems.train);

  await using backend = await startBackendProcess(context, embeddedModelPath);
  const args = [embeddedModelPath, training, test, context.isShort ? '4' : '12'];
  await runPython(context, 'cookbook/main.py', args, { ...backend.env, ...pathOf(packages) });
}

/** The newest cookbook needs SDK 0.38; what else it imports, the environment has. */
export async function testNewestCookbook(context: SuiteContext): Promise<void> {
  const newest = ['tinker==0.38.0', 'tinker-cookbook==0.6.1'];
  await testCookbook(context, await ensurePackages(context, newest));
}

function writeLines(path: string, problems: readonly SolvedProblem[]): Promise<void> {
  const rows = problems.map(({ problem: { target, numbers } }) => ({ target, numbers }));
  return writeFile(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
}

import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runCommand } from '../../cli/run-command.js';
import { generateProblems } from '../../shared/tasks/countdown/generator.js';
import { UserError } from '../../shared/base/errors.js';
import { startBackendProcess } from './backend-process.js';
import { runPython, type SuiteContext } from './suite.js';

const distribution = 'tuft-0.2.2';

/**
 * TuFT's own Countdown example from its source distribution, against the local backend: only
 * arguments set the server, model and data. The data are problems of our generator in the
 * dataset's form.
 *
 * @throws {UserError} if the distribution is unavailable.
 */
export async function testCountdownExample(context: SuiteContext): Promise<void> {
  const { folder } = context;
  const example = await fetchExample(context);
  const [dataset, model] = [join(folder, 'dataset'), join(folder, 'model')];
  await writeDataset(dataset);
  // HF_HOME: the Hugging Face libraries store converted data in this suite's folder too.
  const env = { PYTHONPATH: example, HF_HOME: join(folder, 'huggingface'), HF_HUB_OFFLINE: '1' };
  await runPython(context, 'countdown/model.py', [model, dataset], env);
  await using backend = await startBackendProcess(context, model);
  const args = [example, dataset, model];
  await runPython(context, 'countdown/run_example.py', args, backend.env);
}

/** The example's folder. No line of it is part of this repository. */
async function fetchExample({ python, folder, signal, note }: SuiteContext): Promise<string> {
  note(`fetching ${distribution} from the package index, for its examples`);
  const run = async (args: readonly string[]) => {
    const done = await runCommand(python, ['-m', ...args], { timeoutMs: 180_000, signal });
    signal.throwIfAborted();
    if (done.code === 0) return;
    const said = done.output.split('\n').at(-1);
    throw new UserError(`${distribution} cannot be had, whose example this runs: ${said}`);
  };
  const pip = ['pip', 'download', '--quiet', '--no-deps', '--no-binary', 'tuft', '--dest', folder];
  await run([...pip, distribution.replace('-', '==')]);
  await run(['tarfile', '--extract', join(folder, `${distribution}.tar.gz`), folder]);
  return join(folder, distribution, 'examples', 'countdown_rl');
}

/** Rows with `target` and `nums`, as in Jiayi-Pan/Countdown-Tasks-3to4. */
async function writeDataset(folder: string): Promise<void> {
  const { train } = generateProblems({
    kind: 'generator',
    numbers: [3],
    maxNumber: 20,
    maxTarget: 60,
    seed: 1,
    testSize: 1,
    trainSize: 1_000,
  });
  const rows = train.map(({ problem: { target, numbers } }) => ({ target, nums: numbers }));
  await mkdir(folder, { recursive: true });
  const text = rows.map((row) => `${JSON.stringify(row)}\n`).join('');
  await writeFile(join(folder, 'train.jsonl'), text);
}

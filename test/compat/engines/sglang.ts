import { join } from 'node:path';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import { compatFolder, type SuiteContext } from '../suite.js';
import { enginePython, EngineProcess } from './engine-process.js';

/** The upstream SGLang from the package index. */
const version = '0.5.23';
const cpuFolder = join(compatFolder, 'engines/sglang-cpu');

/** A Python that has SGLang, and what it needs in its environment. */
export interface SglangPython {
  readonly python: string;
  readonly env: NodeJS.ProcessEnv;
}

/**
 * The Python named by OFFBEAT_SGLANG_PYTHON, with an SGLang built for CPUs, else one in the project's cache, where a
 * stand-in replaces SGLang's compiled kernels.
 *
 * @throws {UserError} if it cannot be installed.
 */
export async function sglangPython(context: SuiteContext): Promise<SglangPython> {
  const named = process.env['OFFBEAT_SGLANG_PYTHON'];
  const onCpu = { SGLANG_USE_CPU_ENGINE: '1' };
  if (named !== undefined && named !== '') return { python: named, env: onCpu };
  const python = await enginePython(context, {
    ...{ name: `sglang ${version}`, key: '1', size: '6 GB' }, // another key for other requirements
    install: async (pip) => {
      await pip('install', '--requirement', join(cpuFolder, 'requirements.txt'));
      await pip('install', '--no-deps', `sglang==${version}`);
    },
  });
  return { python, env: { PYTHONPATH: cpuFolder, ...onCpu } };
}

/** A real SGLang that serves the shipped model on a CPU in float32, by PyTorch's own operators. */
export function startSglang(
  { python, env }: SglangPython,
  signal: AbortSignal,
): Promise<EngineProcess> {
  const args = (port: number) => [
    ...['-m', 'sglang.launch_server', `--model-path=${embeddedModelPath}`, '--dtype=float32'],
    ...['--host=127.0.0.1', `--port=${port}`, '--device=cpu', '--enable-metrics'],
    ...['--attention-backend=torch_native', '--sampling-backend=pytorch'],
    ...['--cuda-graph-backend-decode=disabled', '--cuda-graph-backend-prefill=disabled'],
    ...['--disable-overlap-schedule', '--enable-lora', '--lora-backend=torch_native'],
    ...['--lora-target-modules=all', '--max-lora-rank=32', '--max-loras-per-batch=6'],
  ];
  const quiet = { HF_HUB_OFFLINE: '1', OMP_NUM_THREADS: '1' };
  return EngineProcess.start({
    ...{ name: 'SGLang', python, args, signal },
    env: { ...quiet, ...env },
  });
}

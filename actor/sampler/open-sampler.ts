import type { Broker } from '../../shared/broker/broker.js';
import { UserError } from '../../shared/base/errors.js';
import { addressesIn } from '../../shared/service/config-fields.js';
import { AdapterLoader } from '../../shared/run/adapters/adapter-loader.js';
import { AllowedSources } from '../../shared/run/adapters/allowed-sources.js';
import { promptTokens } from '../../shared/tasks/prompt.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { ActorConfig } from '../config.js';
import type { JoinedRun } from '../join-run.js';
import type { Sampler } from './sampler.js';

interface OpenSamplerOptions {
  readonly config: ActorConfig;
  readonly runConfig: RunConfig;
  readonly joined: JoinedRun;
  readonly broker: Broker;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** Called with the reason while something outside is waited for. */
  readonly waitingFor: (reason: string) => void;
}

const usualGroups = 8; // where nothing shows how many would be better

/**
 * Opens the sampler that the configuration asks for, ready to load its first version. Only its own modules are
 * imported: those of the others would delay every start.
 */
export async function openSampler(options: OpenSamplerOptions): Promise<Sampler> {
  const { config, joined, log, signal } = options;
  const {
    sampler,
    threads,
    concurrency,
    segmentTokens,
    stallSeconds,
    onAdoption = 'keep',
  } = config;
  const fixed = concurrency === 'auto' ? usualGroups : concurrency;
  if (sampler === 'onnx') {
    const { directory } = joined;
    if (directory === undefined)
      throw new UserError('--sampler onnx needs --model-dir with weights');
    const decoding = { directory, threads, onAdoption, stallSeconds };
    const { OnnxSampler } = await import('./onnx-sampler.js');
    const given = { ...decoding, concurrency: fixed, adapters: loaderOf(options), log, signal };
    return OnnxSampler.start(given);
  }
  const { EngineSampler } = await import('./engine-sampler.js');
  const { tokenizer } = joined;
  const { rolloutSeconds } = config;
  const calls = { tokenizer, segmentTokens, rolloutSeconds, stallSeconds, log };
  if (sampler === 'tinker') {
    return new EngineSampler(await connectBackend(options), { ...calls, concurrency: fixed });
  }
  return new EngineSampler(await connectServers(sampler, options), { ...calls, concurrency });
}

async function connectBackend(options: OpenSamplerOptions) {
  const { config, runConfig, log, signal, waitingFor } = options;
  const { backendUrl: baseUrl, apiKey } = config;
  if (baseUrl === undefined || apiKey === undefined) {
    throw new UserError('--sampler tinker needs --backend-url and --api-key');
  }
  const modelName = runConfig.model.name;
  const { TinkerEngine } = await import('./tinker-engine.js');
  waitingFor('connecting to the backend');
  const connectPatienceMs = 1_000 * config.startPatienceSeconds;
  return await TinkerEngine.connect({
    ...{ baseUrl, apiKey, modelName, connectPatienceMs, log, signal },
  });
}

async function connectServers(kind: 'vllm' | 'sglang', options: OpenSamplerOptions) {
  const { config, runConfig, joined, log, signal, waitingFor } = options;
  const { engineUrl, engineApiKey: apiKey, engineMaxLoras: maxLoras } = config;
  const { adapterDir, stallSeconds } = config;
  if (engineUrl === undefined) throw new UserError(`--sampler ${kind} needs --engine-url`);
  const { run, groupSize, maxStepsOffPolicy, lora, sampling } = runConfig;
  const { task, dataset, tokenizer, config: model } = joined;
  const problem = dataset.test[0] ?? dataset.train[0];
  if (problem === undefined) throw new UserError('the data of this run has no problem');
  const { connectEngine } = await import('./connect-engine.js');
  return await connectEngine({
    kind,
    urls: addressesIn(engineUrl),
    ...{ apiKey, maxLoras, adapterDir },
    ...{ run, actor: config.name, model, rank: lora.rank, groupSize, maxStepsOffPolicy },
    temperature: sampling.temperature,
    prompt: promptTokens(task.prompt(problem), tokenizer),
    adapters: loaderOf(options),
    ...{ stallSeconds, log, signal, waitingFor },
  });
}

function loaderOf({ config, broker }: OpenSamplerOptions): AdapterLoader {
  const allowed = new AllowedSources(config.adapterSources, '--adapter-sources');
  return new AdapterLoader({ store: broker.policy, allowed });
}

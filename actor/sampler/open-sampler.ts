import type { Broker } from '../../shared/broker/broker.js';
import { UserError } from '../../shared/base/errors.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { ActorConfig } from '../config.js';
import type { JoinedRun } from '../join-run.js';
import { EngineSampler } from './engine-sampler.js';
import { OnnxSampler } from './onnx-sampler.js';
import type { Sampler } from './sampler.js';
import { TinkerEngine } from './tinker-engine.js';

export interface OpenSamplerOptions {
  readonly config: ActorConfig;
  readonly runConfig: RunConfig;
  readonly joined: JoinedRun;
  readonly broker: Broker;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

/** Opens the sampler that the configuration asks for, ready to load its first version. */
export async function openSampler(options: OpenSamplerOptions): Promise<Sampler> {
  const { config, runConfig, joined, broker, log, signal } = options;
  const { sampler, threads, concurrency, segmentTokens, stallSeconds, backendUrl, apiKey } = config;
  const { onAdoption = 'keep' } = config;
  if (sampler === 'onnx' && joined.directory !== undefined) {
    return OnnxSampler.start({
      directory: joined.directory,
      threads,
      concurrency,
      onAdoption,
      policies: broker.policy,
      stallSeconds,
      log,
      signal,
    });
  }
  if (sampler === 'tinker' && backendUrl !== undefined && apiKey !== undefined) {
    const modelName = runConfig.model.name;
    const engine = await TinkerEngine.connect({
      baseUrl: backendUrl,
      apiKey,
      modelName,
      log,
      signal,
    });
    const { tokenizer } = joined;
    return new EngineSampler(engine, { tokenizer, concurrency, segmentTokens, stallSeconds, log });
  }
  throw new UserError(
    `--sampler ${sampler} lacks a setting that it needs; see --model-dir, --backend-url and --api-key`,
  );
}

import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectEngine, type ConnectEngineOptions } from '../../../actor/sampler/connect-engine.js';
import { encodeAdapter } from '../../../shared/model/lora.js';
import { parseModelConfig } from '../../../shared/model/model-config.js';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { silent } from '../../support/log.js';
import { manifest } from '../values.js';

const modelConfig = parseModelConfig(
  await readFile(join(embeddedModelPath, 'config.json'), 'utf8'),
  'config.json',
);
export const rank = 4;

/** The bytes of an adapter that belongs to one version. */
export function adapterBytes(version: number, value = version + 1): Uint8Array {
  const width = modelConfig.hiddenSize;
  const tensors = new Map([
    ['layers.0.self_attn.o_proj.lora_A', matrix(rank, width, value)],
    ['layers.0.self_attn.o_proj.lora_B', matrix(width, rank, 0)],
  ]);
  return encodeAdapter({ rank, alpha: 8, tensors }).safetensors;
}

function matrix(rows: number, columns: number, value: number) {
  return { dims: [rows, columns], data: new Float32Array(rows * columns).fill(value) };
}

/** Versions whose adapters a test has published; each is by default its own. */
export class Adapters {
  readonly #bytes = new Map<string, Uint8Array>();

  manifest(version: number, bytes = adapterBytes(version)): PolicyManifest {
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    this.#bytes.set(sha256, bytes);
    const adapter = { uri: `nats:${sha256}`, sha256, bytes: bytes.byteLength, rank, alpha: 8 };
    return manifest(version, { adapter });
  }

  fetchAdapter({ adapter }: PolicyManifest): Promise<Uint8Array> {
    return Promise.resolve(this.#bytes.get(adapter!.sha256)!);
  }
}

/** A folder for adapters, and an engine that uses it; both end with the scope. */
export async function openEngine(
  urls: readonly string[],
  options: Partial<ConnectEngineOptions> = {},
) {
  const adapters = new Adapters();
  const adapterDir = await mkdtemp(join(tmpdir(), 'offbeat-engine-'));
  const stop = new AbortController();
  const remove = () => rm(adapterDir, { recursive: true, force: true });
  try {
    const engine = await connectEngine({
      ...{ kind: 'vllm', urls, apiKey: undefined, adapterDir, maxLoras: undefined },
      ...{ run: 'r', actor: 'a', adapters, log: silent, waitingFor: () => undefined },
      ...{ model: modelConfig, rank, groupSize: 4, maxStepsOffPolicy: 4, temperature: 1 },
      ...{ prompt: Int32Array.of(1, 2), signal: stop.signal },
      ...options,
    });
    return {
      engine,
      adapters,
      adapterDir,
      [Symbol.asyncDispose]: async () => {
        stop.abort();
        await engine[Symbol.asyncDispose]();
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** A request for a group. */
export const groupRequest = {
  prompt: Int32Array.of(1, 2, 3),
  ...{ count: 3, maxTokens: 5, temperature: 1, seed: 6 },
  stopTokenIds: [2],
};

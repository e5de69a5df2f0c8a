import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { OnnxSampler } from '../../actor/sampler/onnx-sampler.js';
import { PermanentError } from '../../shared/base/errors.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import { createAdapter, encodeAdapter } from '../../shared/model/lora.js';
import { readModelDirectory, type ModelDirectory } from '../../shared/model/model-directory.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { manifest, unproven } from '../actor/values.js';
import { twinFlags, type TwinDraw, type TwinModel, type TwinSequence } from './engine-twin.js';
import { silent } from './log.js';
import { SglangTwin } from './sglang-twin.js';
import { VllmTwin } from './vllm-twin.js';

const { signal } = new AbortController();
const scale = { rank: 1, alpha: 1 };
const base = 0; // the version without an adapter

/** The protocol of a server over a real model: a run can train with it, and a test can kill, stop and restart it as an engine. */
export async function serveModel(
  kind: 'vllm' | 'sglang',
  modelDir: string,
): Promise<VllmTwin | SglangTwin> {
  const directory = await readModelDirectory(modelDir);
  const model = await DecodedModel.open(directory);
  const flags = { ...twinFlags, maxContext: directory.config.maxPositions };
  return await new (kind === 'vllm' ? VllmTwin : SglangTwin)(flags, model).start();
}

/** A model that ONNX Runtime decodes in this process. */
class DecodedModel implements TwinModel {
  readonly #weights = new Map<number, Promise<Uint8Array>>(); // by the decoder's own version numbers
  readonly #versionOf = new Map<string, number>();
  #decoder!: OnnxSampler;
  #seed = 0;
  #nextVersion = base + 1;

  private constructor(private readonly vocabulary: number) {}

  static async open(directory: ModelDirectory): Promise<DecodedModel> {
    const { config } = directory;
    const model = new DecodedModel(config.vocabSize);
    const plain = createAdapter(config, { ...scale, seed: 0, attn: true, mlp: true });
    model.#decoder = await OnnxSampler.start({
      ...{ directory, threads: 1, concurrency: 64, onAdoption: 'keep', log: silent, signal },
      adapters: { fetchAdapter: ({ version }: PolicyManifest) => model.#weights.get(version)! },
    });
    await model.#load(base, encodeAdapter(plain).safetensors, scale);
    return model;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#decoder[Symbol.asyncDispose]();
  }

  async load(name: string, folder: string, loaded: ReadonlyMap<string, string>): Promise<void> {
    const text = await readFile(join(folder, 'adapter_config.json'), 'utf8');
    const { r: rank, lora_alpha: alpha } = Config.parse(JSON.parse(text));
    const bytes = await readFile(join(folder, 'adapter_model.safetensors'));
    for (const [other, version] of this.#versionOf) {
      if (!loaded.has(other)) this.#forget(other, version);
    }
    const version = this.#nextVersion++;
    this.#versionOf.set(name, version);
    try {
      await this.#load(version, bytes, { rank, alpha });
    } catch (error) {
      // The actor first tries an adapter of a single matrix, which changes nothing; the decoder takes whole ones only.
      if (!(error instanceof PermanentError)) throw error;
      this.#versionOf.set(name, base);
    }
  }

  async sample(draw: TwinDraw): Promise<TwinSequence[]> {
    const { adapter, prompt, count, temperature, maxTokens, stopTokenIds, stopStrings } = draw;
    const version = adapter === undefined ? base : this.#versionOf.get(adapter)!;
    const drawn = { prompt: Int32Array.from(prompt), count, temperature, maxTokens, stopTokenIds };
    const rollouts = await this.#draw(version, { ...drawn, stopStrings, seed: this.#seed++ });
    return await Promise.all(
      rollouts.map(async ({ tokens, behaviorLogprobs, stopReason }) => ({
        ...{ tokens: [...tokens], logprobs: [...behaviorLogprobs], stopReason },
        top: await Promise.all(
          Array.from(tokens, (_, at) =>
            this.#top(version, [...prompt, ...tokens.slice(0, at)], draw),
          ),
        ),
      })),
    );
  }

  /** The most probable tokens after a text: each token of the vocabulary is given instead of drawn. */
  async #top(
    version: number,
    text: readonly number[],
    { temperature, mostProbable }: TwinDraw,
  ): Promise<TwinSequence['top'][number]> {
    if (mostProbable === 0) return [];
    const asked = { prompt: Int32Array.from(text), temperature, stopTokenIds: [], seed: 0 };
    const scored = await Promise.all(
      Array.from({ length: this.vocabulary }, async (_, token) => {
        const forced = { ...asked, count: 1, maxTokens: 1, forced: Int32Array.of(token) };
        const [rollout] = await this.#draw(version, forced);
        return { token, logprob: rollout!.behaviorLogprobs[0]! };
      }),
    );
    return scored.sort((a, b) => b.logprob - a.logprob).slice(0, mostProbable);
  }

  #draw(version: number, request: GroupRequest): Promise<SampledRollout[]> {
    const never = new AbortController().signal; // of its own: each call adds a listener
    return this.#decoder.sample(request, { version, adoptsNewer: false }, never);
  }

  #forget(name: string, version: number): void {
    this.#versionOf.delete(name);
    if (version === base) return;
    this.#weights.delete(version);
    this.#decoder.drop(version);
  }

  async #load(
    version: number,
    bytes: Uint8Array,
    { rank, alpha }: { readonly rank: number; readonly alpha: number },
  ): Promise<void> {
    this.#weights.set(version, Promise.resolve(bytes));
    const adapter = {
      uri: 'nats:none',
      sha256: '0'.repeat(64),
      bytes: bytes.byteLength,
      rank,
      alpha,
    };
    await this.#decoder.load(manifest(version, { adapter }), unproven, signal);
    this.#decoder.admit(version);
  }
}

const Config = z.object({ r: z.int().positive(), lora_alpha: z.number().positive() });

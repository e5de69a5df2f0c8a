import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { OnnxSampler } from '../../actor/sampler/onnx-sampler.js';
import { PermanentError } from '../../shared/base/errors.js';
import { createAdapter, encodeAdapter } from '../../shared/model/lora.js';
import { readModelDirectory } from '../../shared/model/model-directory.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { manifest, unproven } from '../actor/values.js';
import { silent } from './broker.js';
import { twinFlags, type TwinDraw, type TwinSequence } from './engine-twin.js';
import { SglangTwin } from './sglang-twin.js';

const { signal } = new AbortController();
const scale = { rank: 1, alpha: 1 };
const base = 0; // the version without an adapter

/**
 * SGLang's protocol over a real model, which ONNX Runtime decodes in this process: a run can train with it, and a test can
 * kill, stop and restart it as an engine.
 */
export class ModelTwin extends SglangTwin {
  /** Every call that samples takes this much longer. */
  delayMs = 0;
  readonly #weights = new Map<number, Promise<Uint8Array>>(); // by the decoder's own version numbers
  readonly #versionOf = new Map<string, number>();
  #decoder: OnnxSampler | undefined;
  #seed = 0;
  #nextVersion = base + 1;

  /** @param modelDir Hugging Face directory of the model. */
  static async serving(modelDir: string): Promise<ModelTwin> {
    const directory = await readModelDirectory(modelDir);
    const { config } = directory;
    const twin = new ModelTwin({ ...twinFlags, maxContext: config.maxPositions });
    const plain = createAdapter(config, { ...scale, seed: 0, attn: true, mlp: true });
    const decoder = await OnnxSampler.start({
      ...{ directory, threads: 1, concurrency: 64, onAdoption: 'keep', log: silent, signal },
      adapters: { fetchAdapter: ({ version }: PolicyManifest) => twin.#weights.get(version)! },
    });
    twin.#decoder = decoder;
    await twin.#load(base, encodeAdapter(plain).safetensors, scale);
    await twin.start();
    return twin;
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await super[Symbol.asyncDispose]();
    await this.#decoder?.[Symbol.asyncDispose]();
  }

  protected override async takeAdapter(name: string, folder: string): Promise<string | undefined> {
    const problem = await super.takeAdapter(name, folder);
    if (problem !== undefined) return problem;
    const text = await readFile(join(folder, 'adapter_config.json'), 'utf8');
    const { r: rank, lora_alpha: alpha } = Config.parse(JSON.parse(text));
    const bytes = await readFile(join(folder, 'adapter_model.safetensors'));
    for (const [other, version] of this.#versionOf) {
      if (!this.loaded.has(other)) this.#forget(other, version);
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
    return undefined;
  }

  protected override async sample(draw: TwinDraw): Promise<TwinSequence[]> {
    const { adapter, prompt, count, temperature, maxTokens, stopTokenIds, stopStrings } = draw;
    const version = adapter === undefined ? base : this.#versionOf.get(adapter)!;
    await new Promise((resolve) => setTimeout(resolve, this.delayMs));
    const rollouts = await this.#decoder!.sample(
      {
        ...{ prompt: Int32Array.from(prompt), count, temperature, maxTokens, stopTokenIds },
        ...{ stopStrings, seed: this.#seed++ },
      },
      { version, adoptsNewer: false },
      new AbortController().signal,
    );
    this.counters.prompt += prompt.length;
    this.counters.generated += rollouts.reduce((sum, { tokens }) => sum + tokens.length, 0);
    return rollouts.map(({ tokens, behaviorLogprobs, stopReason }) => ({
      ...{ tokens: [...tokens], logprobs: [...behaviorLogprobs], stopReason },
    }));
  }

  #forget(name: string, version: number): void {
    this.#versionOf.delete(name);
    if (version === base) return;
    this.#weights.delete(version);
    this.#decoder!.drop(version);
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
    await this.#decoder!.load(manifest(version, { adapter }), unproven, signal);
    this.#decoder!.admit(version);
  }
}

const Config = z.object({ r: z.int().positive(), lora_alpha: z.number().positive() });

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parentPort } from 'node:worker_threads';
import { sha256 } from '../shared/base/bytes.js';
import { errorText, PermanentError } from '../shared/base/errors.js';
import { Decoder } from '../shared/model/decoder.js';
import { checkAdapter, createAdapter, decodeAdapter, type Adapter } from '../shared/model/lora.js';
import { checkModelDirectory } from '../shared/model/model-directory.js';
import type { ModelFolder } from '../shared/model/model-weights.js';
import { sessionThreads } from '../shared/model/parameters.js';
import { Scorer } from '../shared/model/scorer.js';
import { loadTokenizer } from '../shared/model/tokenizer.js';
import type { SampledSequence, TopTokens } from '../shared/tinker/types.js';
import { serveCalls } from '../shared/service/worker-calls.js';

/** The location of the weights of a sampling session; absent for the base model. */
export interface AdapterFile {
  readonly folder: string; // holds adapter_model.safetensors
  readonly sha256: string; // of the content that the session was created for
  readonly rank: number;
  readonly alpha: number;
}

/** One request to the sampling thread. */
export interface SampleJob {
  readonly prompt: Int32Array; // [P]
  readonly count: number;
  readonly maxTokens: number;
  readonly temperature: number; // 0: greedy
  readonly seed: number;
  readonly stopTokenIds: readonly number[]; // in addition to the model's end of sequence
  readonly stopStrings: readonly string[];
  readonly ignoresEos?: boolean; // samples on past the model's end of sequence
}

/** The calls that the sampling thread serves, one at a time. */
export interface SamplingCalls {
  /** Must be the first call. @throws {UserError} on a broken model directory. */
  load(input: { modelDir: string; threads: number }): Promise<void>;
  /** Samples the jobs in one batch; returns `count` sequences for each. */
  sample(input: {
    adapter: AdapterFile | undefined;
    jobs: readonly SampleJob[];
  }): Promise<SampledSequence[][]>;
  /** Returns [P] logprobs, NaN for the first token, which has no prediction. */
  promptLogprobs(input: {
    adapter: AdapterFile | undefined;
    prompt: Int32Array; // [P]
    temperature: number;
  }): Promise<Float32Array>;
  /** Returns for each text [T] that continues `prefix` the `k` most probable tokens in the place of each of its own. */
  topTokens(input: {
    adapter: AdapterFile | undefined;
    prefix: Int32Array; // [P], P > 0
    texts: readonly Int32Array[];
    k: number;
    temperature: number;
  }): Promise<TopTokens[]>;
}

if (parentPort === null) throw new Error('sampling-worker runs as a worker thread');
let setup: { directory: ModelFolder; threads: number; decoder: Decoder } | undefined;

function loaded() {
  if (setup === undefined) throw new Error('the sampling model is not loaded');
  return setup;
}

/** Creates a value on first use. */
function lazily<T>(create: () => Promise<T>): () => Promise<T> {
  let value: Promise<T> | undefined;
  return () => (value ??= create());
}

const scorer = lazily(() => Scorer.load(loaded().directory, { threads: loaded().threads }));
const tokenizer = lazily(() => loadTokenizer(loaded().directory));

const cachedAdapters = 8; // sessions of the few newest policy versions sample concurrently
const adapters = new Map<string, Adapter>(); // by digest, least recently used first

async function readAdapter(file: AdapterFile): Promise<Adapter> {
  const cached = adapters.get(file.sha256);
  const adapter = cached ?? decodeAdapter(await readAdapterFile(file), file);
  if (cached === undefined) checkAdapter(adapter, loaded().directory.config);
  adapters.delete(file.sha256);
  adapters.set(file.sha256, adapter);
  if (adapters.size > cachedAdapters) adapters.delete(adapters.keys().next().value!);
  return adapter;
}

async function readAdapterFile({ folder, sha256: expected }: AdapterFile): Promise<Uint8Array> {
  const path = join(folder, 'adapter_model.safetensors');
  const remedy = 'create another sampling session';
  const bytes = await readFile(path).catch((cause: unknown) => {
    throw new PermanentError(
      `the checkpoint of this sampling session cannot be read (${errorText(cause)}); ${remedy}`,
    );
  });
  if (sha256(bytes) === expected) return bytes;
  throw new PermanentError(`the checkpoint of this sampling session has been replaced; ${remedy}`);
}

/** The base model as a policy: a new adapter does not change its output. */
function neutralAdapter(): Adapter {
  const { config } = loaded().directory;
  return createAdapter(config, { rank: 1, alpha: 1, seed: 0, attn: true, mlp: true });
}

serveCalls<SamplingCalls>(parentPort, {
  async load({ modelDir, threads: most }) {
    const directory = await checkModelDirectory(modelDir);
    const threads = sessionThreads(directory.config, most);
    setup = { directory, threads, decoder: Decoder.of(directory, { threads }) };
  },

  async sample({ adapter: file, jobs }) {
    const { decoder, directory } = loaded();
    const policy = {
      version: 0,
      adapter: file === undefined ? neutralAdapter() : await readAdapter(file),
    };
    const ownStops = directory.config.eosTokenIds;
    const stops = ownStops.length > 0 ? ownStops : (await tokenizer()).eosTokenIds;
    const sampled = await decoder.sampleGroups(
      jobs.map((job) => ({
        ...job,
        stopTokenIds: [...(job.ignoresEos === true ? [] : stops), ...job.stopTokenIds],
      })),
      () => policy,
    );
    return sampled.map((rollouts) =>
      rollouts!.map(({ tokens, behaviorLogprobs: logprobs, stopReason }) => ({
        tokens,
        logprobs,
        stopReason,
      })),
    );
  },

  async promptLogprobs({ adapter: file, prompt, temperature }) {
    const adapter = file === undefined ? undefined : await readAdapter(file);
    const all = new Float32Array(prompt.length).fill(NaN);
    if (prompt.length < 2) return all;
    const [logprobs] = await (
      await scorer()
    ).logprobs([prompt.slice(0, -1)], [prompt.slice(1)], adapter, temperature);
    all.set(logprobs!, 1);
    return all;
  },

  async topTokens({ adapter: file, prefix, texts, k, temperature }) {
    const adapter = file === undefined ? undefined : await readAdapter(file);
    const whole = texts.map((text) => Int32Array.of(...prefix, ...text.slice(0, -1)));
    const top = await (await scorer()).topTokens(whole, k, adapter, temperature);
    return top.map(({ tokens, logprobs }, i) => {
      const first = (prefix.length - 1) * k;
      const end = first + texts[i]!.length * k;
      return { k, tokens: tokens.slice(first, end), logprobs: logprobs.slice(first, end) };
    });
  },
});

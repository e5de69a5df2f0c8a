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
  /** Scores texts in one batch. */
  score(input: {
    adapter: AdapterFile | undefined;
    texts: readonly ScoredPart[];
    k: number; // most probable tokens of each place; 0: none
    temperature: number;
  }): Promise<Scores[]>;
}

/** The tokens of a text [T] to score: those from the index `from` on, which is above 0. */
export interface ScoredPart {
  readonly tokens: Int32Array; // [T]
  readonly from: number;
}

/** Of the n tokens of a {@link ScoredPart}. */
export interface Scores {
  readonly logprobs: Float32Array; // [n]
  readonly top: TopTokens; // of n positions
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

  async score({ adapter: file, texts, k, temperature }) {
    const adapter = file === undefined ? undefined : await readAdapter(file);
    // A text of which nothing is to be scored, such as one token, has no input tokens.
    const known = texts.filter(({ tokens, from }) => from < tokens.length);
    const inputs = known.map(({ tokens }) => tokens.slice(0, -1));
    const targets = known.map(({ tokens }) => tokens.slice(1));
    const model = await scorer();
    const scores =
      k === 0
        ? (await model.logprobs(inputs, targets, adapter, temperature)).map((logprobs) => ({
            logprobs,
            top: { tokens: new Int32Array(), logprobs: new Float32Array() },
          }))
        : await model.scores(inputs, targets, k, adapter, temperature);
    const found = new Map(known.map((text, i) => [text, scores[i]!]));
    return texts.map((text) => {
      const { logprobs, top } = found.get(text) ?? nothing;
      const first = text.from - 1;
      return {
        logprobs: logprobs.slice(first),
        top: { k, tokens: top.tokens.slice(first * k), logprobs: top.logprobs.slice(first * k) },
      };
    });
  },
});

const nothing = {
  logprobs: new Float32Array(),
  top: { tokens: new Int32Array(), logprobs: new Float32Array() },
};

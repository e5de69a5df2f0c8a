import { parentPort } from 'node:worker_threads';
import { lazily } from '../shared/base/remembered.js';
import { Decoder } from '../shared/model/decoder.js';
import { createAdapter, type Adapter } from '../shared/model/lora.js';
import { assertUnchanged, type ModelDirectory } from '../shared/model/model-directory.js';
import { specialTokenOf } from '../shared/model/stop-strings.js';
import { storedWeights, type ModelFolder } from '../shared/model/model-weights.js';
import { sessionThreads } from '../shared/model/parameters.js';
import { loadTokenizer } from '../shared/model/tokenizer.js';
import { frozen } from '../shared/model/weight-source.js';
import type { SampledSequence } from '../shared/tinker/types.js';
import { serveCalls } from '../shared/service/worker-calls.js';
import { AdapterFiles, type AdapterFile } from './adapter-files.js';

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
  /** Must be the first call. @throws {UserError} on a model directory that has changed since. */
  load(input: { directory: ModelDirectory; threads: number }): Promise<void>;
  /** Samples the jobs in one batch; returns `count` sequences for each. */
  sample(input: {
    adapter: AdapterFile | undefined;
    jobs: readonly SampleJob[];
  }): Promise<SampledSequence[][]>;
}

if (parentPort === null) throw new Error('sampling-worker runs as a worker thread');
let given: { directory: ModelDirectory; threads: number } | undefined;

/** Each part of a directory is read when it is first needed. One that has changed is looked at again for the next request. */
const unchanged = async (): Promise<ModelDirectory> => {
  if (given === undefined) throw new Error('load was not called');
  await assertUnchanged(given.directory);
  return given.directory;
};
const tokenizer = lazily(async () => loadTokenizer(await unchanged()));
const loaded = lazily(async () => {
  const directory = await unchanged();
  const openWeights = async () => frozen(await storedWeights(await unchanged()));
  const threads = sessionThreads(directory.config, given!.threads);
  return { directory, decoder: new Decoder(directory.config, openWeights, threads, tokenizer) };
});
const adapters = new AdapterFiles();

/** The base model as a policy. All its modules are adapted, without effect, so that it is sampled by the same sessions as trained adapters. */
function neutralAdapter({ config }: ModelFolder): Adapter {
  return createAdapter(config, { rank: 1, alpha: 1, seed: 0, attn: true, mlp: true });
}

/** Separates the stop strings that name a special token from those that a text can contain. */
async function divided(
  stopStrings: readonly string[],
): Promise<{ special: number[]; texts: string[] }> {
  const special: number[] = [];
  const texts: string[] = [];
  for (const stop of stopStrings) {
    const token = specialTokenOf(stop, await tokenizer());
    if (token === undefined) texts.push(stop);
    else special.push(token);
  }
  return { special, texts };
}

serveCalls<SamplingCalls>(parentPort, {
  async load(input) {
    given = input;
    await loaded();
  },

  async sample({ adapter: file, jobs }) {
    const { decoder, directory } = await loaded();
    const policy = {
      version: 0,
      adapter:
        file === undefined
          ? neutralAdapter(directory)
          : await adapters.read(file, directory.config),
    };
    const ownStops = directory.config.eosTokenIds;
    const stops = ownStops.length > 0 ? ownStops : (await tokenizer()).eosTokenIds;
    const requests = jobs.map(async (job) => {
      const { special, texts } = await divided(job.stopStrings);
      const own = job.ignoresEos === true ? [] : stops;
      const stopTokenIds = [...own, ...job.stopTokenIds, ...special];
      return { ...job, stopTokenIds, stopStrings: texts };
    });
    const sampled = await decoder.sampleGroups(await Promise.all(requests), () => policy);
    return sampled.map((rollouts) =>
      rollouts!.map(({ tokens, behaviorLogprobs: logprobs, stopReason }) => ({
        tokens,
        logprobs,
        stopReason,
      })),
    );
  },
});

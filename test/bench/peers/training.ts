import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startLocalBackend, type LocalBackend } from '../../../local-backend/local-backend.js';
import { ParallelTrainer } from '../../../local-backend/parallel-trainer.js';
import {
  adamWStep,
  freshMoments,
  globalNorm,
  type Gradients,
} from '../../../shared/model/adamw.js';
import { Decoder } from '../../../shared/model/decoder.js';
import { createAdapter, encodeAdapter, type Adapter } from '../../../shared/model/lora.js';
import {
  embeddedModelPath,
  readModelDirectory,
  type ModelDirectory,
} from '../../../shared/model/model-directory.js';
import { packSharedPrefixes, type PackedRow } from '../../../shared/model/packing.js';
import { linearModules } from '../../../shared/model/parameters.js';
import { loadTokenizer } from '../../../shared/model/tokenizer.js';
import type { Datum } from '../../../shared/rl/datum.js';
import { embeddedDataset, generateProblems } from '../../../shared/tasks/countdown/generator.js';
import { renderPrompt, styles } from '../../../shared/tasks/countdown/prompts.js';
import { promptTokens } from '../../../shared/tasks/prompt.js';
import { TinkerClient } from '../../../shared/tinker/client.js';
import type { TrainingRun } from '../../../shared/tinker/training-run.js';
import { silent } from '../../support/log.js';
import { datum } from '../model.js';
import { spentSince, startClocks } from './clocks.js';
import type { Round, Side } from './comparison.js';
import { lora } from './decoding.js';
import type { MachineRates } from './machine.js';

const [groups, groupSize, minibatches] = [64, 16, 4];
const thresholds = { clip_low_threshold: 0, clip_high_threshold: 4, temperature: 1 };
/** Changes no weight, so that every round computes the same. */
const adam = {
  learningRate: 1e-30,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0,
  gradClipNorm: 0,
};

/** What a training step computed, for comparison with peers. */
export interface StepRound extends Round {
  readonly loss?: number | undefined;
  readonly norm?: number | undefined;
}

/** A step of 64 groups of 16 answers of the model that ships, and a folder with it for the peers. */
export class StepData implements AsyncDisposable {
  private constructor(
    readonly directory: ModelDirectory,
    readonly adapter: Adapter,
    readonly data: readonly Datum[],
    readonly rows: readonly PackedRow[],
    readonly folder: string,
  ) {}

  static async create(): Promise<StepData> {
    const directory = await readModelDirectory(embeddedModelPath);
    const tokenizer = await loadTokenizer(directory);
    const decoder = Decoder.of(directory, { threads: 1 });
    const adapter = createAdapter(directory.config, lora);
    const prompts = generateProblems(embeddedDataset)
      .test.slice(0, groups)
      .map(({ problem }) => promptTokens(renderPrompt(styles.compact.en, problem), tokenizer));
    const sampled = await decoder.sampleGroups(
      prompts.map((prompt, seed) => ({
        ...{ prompt, seed, count: groupSize, temperature: 1, maxTokens: 20 },
        stopTokenIds: tokenizer.eosTokenIds,
      })),
      () => ({ version: 0, adapter }),
    );
    const data = sampled.flatMap((group, i) =>
      group!.map((rollout) => datum(prompts[i]!, rollout)),
    );
    // As Trainer packs them: the rows of the peer are ours.
    const rows = packSharedPrefixes(
      data.map((one) => ({ ...one, idle: one.inputs.advantages!.findIndex((a) => a !== 0) })),
      96,
    );
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-peers-'));
    const { safetensors, config } = encodeAdapter(adapter, embeddedModelPath);
    await writeFile(join(folder, 'adapter_model.safetensors'), safetensors);
    await writeFile(join(folder, 'adapter_config.json'), config);
    const step = {
      rank: adapter.rank,
      alpha: adapter.alpha,
      rows,
      data: data.map(({ tokens, targetTokens, inputs }) => ({
        tokens: [...tokens],
        targets: [...targetTokens],
        logprobs: [...inputs.logprobs!],
        advantages: [...inputs.advantages!],
      })),
    };
    await writeFile(join(folder, 'step.json'), JSON.stringify(step));
    return new StepData(directory, adapter, data, rows, folder);
  }

  /** The most rollouts in a second of one processor: the matrix products of rows without padding, and nothing else. */
  limit(machine: MachineRates): number {
    return (this.data.length * machine.products) / this.#operations();
  }

  /**
   * Operations of the matrix products of a step. Forwards 2 for each weight and token; backwards as many by the
   * inputs, and for the adapter as many by its weights.
   */
  #operations(): number {
    const { config } = this.directory;
    const tokens = this.rows.reduce((sum, { length }) => sum + length, 0);
    const squares = this.rows.reduce((sum, { length }) => sum + length ** 2, 0);
    let perToken = 4 * config.hiddenSize * config.vocabSize;
    for (const { in: width, out } of linearModules(config)) {
      perToken += config.numLayers * (4 * width * out + 6 * lora.rank * (width + out));
    }
    const attention = 12 * config.numLayers * config.numHeads * config.headDim * squares;
    return tokens * perToken + attention;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** Our trainer, given the whole step in one call, and AdamW. */
export class OurTrainer implements Side {
  readonly #moments;

  private constructor(
    private readonly trainer: ParallelTrainer,
    private readonly step: StepData,
  ) {
    this.#moments = freshMoments(step.adapter.tensors);
  }

  static async open(step: StepData, threads: number): Promise<OurTrainer> {
    const ours = new OurTrainer(await ParallelTrainer.load(step.directory, threads), step);
    await ours.round();
    return ours;
  }

  async round(): Promise<StepRound> {
    const { adapter, data } = this.step;
    const clocks = startClocks();
    const gradients: Gradients = new Map();
    const { lossSum } = await this.trainer.forwardBackward(
      adapter,
      data,
      'cispo',
      thresholds,
      gradients,
    );
    adamWStep(adapter.tensors, gradients, this.#moments, adam);
    const spent = spentSince(clocks);
    return { count: data.length, ...spent, loss: lossSum, norm: globalNorm(gradients) };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.trainer[Symbol.asyncDispose]();
  }
}

/** The local backend as a run calls it: minibatches over HTTP, none awaiting the one before, then the optimizer step. */
export class OurBackend implements Side {
  private constructor(
    private readonly backend: LocalBackend,
    private readonly client: TinkerClient,
    private readonly run: TrainingRun,
    private readonly step: StepData,
  ) {}

  static async open(step: StepData, threads: number): Promise<OurBackend> {
    const [apiKey, modelName] = ['tml-bench', 'base'];
    const backend = await startLocalBackend({
      ...{ host: '127.0.0.1', port: 0, apiKey, modelName, threads, log: silent },
      ...{ modelDir: embeddedModelPath, checkpointDir: join(step.folder, 'checkpoints') },
      loraAlpha: lora.alpha,
    });
    await backend.loaded;
    const { signal } = new AbortController();
    const client = await TinkerClient.connect({
      baseUrl: backend.url,
      apiKey,
      log: silent,
      signal,
    });
    const run = await client.createLoraModel({
      baseModel: modelName,
      rank: lora.rank,
      seed: lora.seed,
    });
    const ours = new OurBackend(backend, client, run, step);
    await ours.round();
    return ours;
  }

  async round(): Promise<StepRound> {
    const { data } = this.step;
    const size = data.length / minibatches;
    const clocks = startClocks();
    const passes = Array.from({ length: minibatches }, (_, i) =>
      this.run.forwardBackward(data.slice(i * size, (i + 1) * size), 'cispo', thresholds),
    );
    const [results] = await Promise.all([Promise.all(passes), this.run.optimStep(adam)]);
    const spent = spentSince(clocks);
    const loss = results.reduce((sum, { metrics }) => sum + metrics['loss:sum']!, 0);
    return { count: data.length, ...spent, loss };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client[Symbol.asyncDispose]();
    await this.backend[Symbol.asyncDispose]();
  }
}

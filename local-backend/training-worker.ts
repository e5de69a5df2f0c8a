import { parentPort } from 'node:worker_threads';
import { PermanentError } from '../shared/base/errors.js';
import type { AdamParams } from '../shared/rl/adam-params.js';
import { createAdapter, type AdapterOptions } from '../shared/model/lora.js';
import { assertUnchanged, type ModelDirectory } from '../shared/model/model-directory.js';
import type { ModelFolder } from '../shared/model/model-weights.js';
import type { Datum } from '../shared/rl/datum.js';
import type { ServedLoss } from '../shared/rl/gspo.js';
import { AdapterFiles } from './adapter-files.js';
import type { CheckpointFiles } from './checkpoint-store.js';
import type { CustomLoss } from '../shared/tinker/api.js';
import type { CustomInputs } from '../shared/tinker/types.js';
import { ParallelTrainer } from './parallel-trainer.js';
import { TracedLoss } from './custom-loss/traced-loss.js';
import { scoreTexts, type Scores, type ScoringJob } from './scored-texts.js';
import { TrainableAdapter, type PassResult } from './trainable-adapter.js';
import { serveCalls } from '../shared/service/worker-calls.js';

/** The calls that the training thread serves, one at a time. */
export interface TrainingCalls {
  /** Must be the first call. @throws {UserError} on a model directory that has changed since. */
  load(input: { directory: ModelDirectory; threads: number }): Promise<void>;
  create(input: { run: string } & AdapterOptions): void;
  drop(input: { run: string }): void;
  forwardBackward(input: {
    run: string;
    data: readonly Datum[];
    loss: ServedLoss;
    config: Readonly<Record<string, number>>;
    isForwardOnly: boolean;
    custom?: { loss: CustomLoss; inputs: readonly CustomInputs[] };
  }): Promise<PassResult>;
  optimStep(input: { run: string; params: AdamParams }): { gradNorm: number; step: number };
  save(input: { run: string; baseModel: string; withOptimizer: boolean }): CheckpointFiles;
  /** Scores texts here, since this thread has the weights for it already. */
  score(input: ScoringJob): Promise<Scores[]>;
  restore(input: { run: string } & Pick<CheckpointFiles, 'adapter' | 'optimizer'>): void;
}

if (parentPort === null) throw new Error('training-worker runs as a worker thread');
let model: { directory: ModelFolder; trainer: ParallelTrainer } | undefined;
const adapters = new Map<string, TrainableAdapter>();
const files = new AdapterFiles();

function adapterOf(run: string): TrainableAdapter {
  const adapter = adapters.get(run);
  if (adapter === undefined) throw new PermanentError(`run ${run} was unloaded`);
  return adapter;
}

function loaded(): { directory: ModelFolder; trainer: ParallelTrainer } {
  if (model === undefined) throw new Error('the training model is not loaded');
  return model;
}

const calls: TrainingCalls = {
  async load({ directory, threads }) {
    await assertUnchanged(directory);
    model = { directory, trainer: await ParallelTrainer.load(directory, threads) };
  },
  create({ run, ...options }) {
    adapters.set(run, new TrainableAdapter(createAdapter(loaded().directory.config, options)));
  },
  drop({ run }) {
    adapters.delete(run);
  },
  forwardBackward({ run, data, loss, config, isForwardOnly, custom }) {
    const { trainer } = loaded();
    const adapter = adapterOf(run);
    const own = custom && { loss: new TracedLoss(custom.loss), inputs: custom.inputs };
    return isForwardOnly
      ? adapter.forward(trainer, data, loss, config, own)
      : adapter.forwardBackward(trainer, data, loss, config, own);
  },
  optimStep: ({ run, params }) => adapterOf(run).optimStep(params),
  save: ({ run, baseModel, withOptimizer }) => adapterOf(run).encode(baseModel, withOptimizer),
  async score(job) {
    const { trainer, directory } = loaded();
    const adapter = job.adapter && (await files.read(job.adapter, directory.config));
    return await scoreTexts(trainer.scorer, adapter, job);
  },
  restore({ run, ...checkpoint }) {
    adapterOf(run).restore(checkpoint);
  },
};

serveCalls(parentPort, calls, { beforeEnd: async () => model?.trainer[Symbol.asyncDispose]() });

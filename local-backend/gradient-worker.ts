import { parentPort } from 'node:worker_threads';
import type { Gradients } from '../shared/model/adamw.js';
import type { Adapter } from '../shared/model/lora.js';
import { checkModelDirectory } from '../shared/model/model-directory.js';
import { Trainer, type TrainingResult } from '../shared/model/trainer.js';
import type { Datum } from '../shared/rl/datum.js';
import type { LossName } from '../shared/rl/losses.js';
import { serveCalls } from '../shared/service/worker-calls.js';

/** The calls of a thread that computes a part of a batch. It keeps the model and nothing else. */
export interface GradientCalls {
  /** Must be the first call. @throws {UserError} on a broken model directory. */
  load(input: { modelDir: string }): Promise<void>;
  forwardBackward(input: {
    adapter: Adapter;
    data: readonly Datum[];
    loss: LossName;
    config: Readonly<Record<string, number>>;
  }): Promise<TrainingResult & { readonly gradients: Gradients }>;
  forward(input: {
    adapter: Adapter;
    data: readonly Datum[];
    temperature: number;
  }): Promise<Float32Array[]>;
}

if (parentPort === null) throw new Error('gradient-worker runs as a worker thread');
let trainer: Trainer | undefined;

function loaded(): Trainer {
  if (trainer === undefined) throw new Error('the training model is not loaded');
  return trainer;
}

serveCalls<GradientCalls>(parentPort, {
  async load({ modelDir }) {
    trainer = await Trainer.load(await checkModelDirectory(modelDir), { threads: 1 });
  },
  async forwardBackward({ adapter, data, loss, config }) {
    const gradients: Gradients = new Map();
    return {
      ...(await loaded().forwardBackward(adapter, data, loss, config, gradients)),
      gradients,
    };
  },
  forward: ({ adapter, data, temperature }) => loaded().forward(adapter, data, temperature),
});

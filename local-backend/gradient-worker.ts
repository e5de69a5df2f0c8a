import { parentPort } from 'node:worker_threads';
import { lazily } from '../shared/base/remembered.js';
import type { Gradients } from '../shared/model/adamw.js';
import type { Adapter } from '../shared/model/lora.js';
import { assertUnchanged, type ModelDirectory } from '../shared/model/model-directory.js';
import { Trainer, type TrainingResult } from '../shared/model/trainer.js';
import type { Datum } from '../shared/rl/datum.js';
import type { LossName } from '../shared/rl/losses.js';
import { serveCalls } from '../shared/service/worker-calls.js';

/** The calls of a thread that computes a part of a batch. It keeps the model and nothing else. */
export interface GradientCalls {
  /** Must be the first call. @throws {UserError} on a model directory that has changed since. */
  load(input: { directory: ModelDirectory }): Promise<void>;
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
let given: ModelDirectory | undefined;

/** A directory that has changed is looked at again for the next call. */
const loaded = lazily(async () => {
  if (given === undefined) throw new Error('load was not called');
  await assertUnchanged(given);
  return Trainer.load(given, { threads: 1 });
});

serveCalls<GradientCalls>(parentPort, {
  async load({ directory }) {
    given = directory;
    await loaded();
  },
  async forwardBackward({ adapter, data, loss, config }) {
    const gradients: Gradients = new Map();
    return {
      ...(await (await loaded()).forwardBackward(adapter, data, loss, config, gradients)),
      gradients,
    };
  },
  forward: async ({ adapter, data, temperature }) =>
    (await loaded()).forward(adapter, data, temperature),
});

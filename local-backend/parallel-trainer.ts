import type { Gradients } from '../shared/model/adamw.js';
import type { Adapter } from '../shared/model/lora.js';
import type { ModelDirectory } from '../shared/model/model-directory.js';
import { sessionThreads } from '../shared/model/parameters.js';
import type { Scorer } from '../shared/model/scorer.js';
import { accumulate, Trainer, type TrainingResult } from '../shared/model/trainer.js';
import { checkData, checkInputs, type Datum } from '../shared/rl/datum.js';
import type { LossName } from '../shared/rl/losses.js';
import { WorkerCalls } from '../shared/service/worker-calls.js';
import type { GradientCalls } from './gradient-worker.js';
import type { GradientSource } from './trainable-adapter.js';

/** A part of a batch with fewer tokens takes less time than to hand it to another thread. */
const minTokensPerPart = 512;

/**
 * Trains on several cores. The products of a small model are too small to be worth dividing: two threads of one
 * session make it 1.2 times as fast, and two sessions of one thread 1.6 times. So each thread has the whole model
 * and computes the gradient of a part of the data. A large model has one session, whose products use all threads.
 *
 * The parts depend only on the data and the number of threads, and their gradients are added in the order of the
 * parts, so that equal calls give equal results.
 */
export class ParallelTrainer implements GradientSource, AsyncDisposable {
  readonly #directory: ModelDirectory;
  readonly #own: Trainer;
  readonly #maxParts: number;
  readonly #others: WorkerCalls<GradientCalls>[] = []; // each begun when there is a part for it
  #isEnding = false;

  private constructor(directory: ModelDirectory, own: Trainer, maxParts: number) {
    this.#directory = directory;
    this.#own = own;
    this.#maxParts = maxParts;
  }

  /** @param threads used at most, this one included. */
  static async load(directory: ModelDirectory, threads: number): Promise<ParallelTrainer> {
    const ownThreads = sessionThreads(directory.config, threads);
    const own = await Trainer.load(directory, { threads: ownThreads });
    return new ParallelTrainer(directory, own, ownThreads === threads ? 1 : threads);
  }

  /** Scores texts on this thread. */
  get scorer(): Scorer {
    return this.#own.scorer;
  }

  /** @see Trainer.forwardBackward */
  async forwardBackward(
    adapter: Adapter,
    data: readonly Datum[],
    loss: LossName,
    config: Readonly<Record<string, number>>,
    gradients: Gradients,
  ): Promise<TrainingResult> {
    checkData(data); // here, so that an error names the datum of the call and not of a part
    checkInputs(data, loss);
    const results = await this.#inParts(
      data,
      (part) => this.#own.forwardBackward(adapter, part, loss, config, gradients),
      (worker, part) =>
        worker.call('forwardBackward', { adapter, data: part.map(copyOf), loss, config }),
    );
    for (const result of results) {
      if (!('gradients' in result)) continue;
      for (const [key, part] of result.gradients) accumulate(gradients, key, part.length, part);
    }
    return {
      logprobs: results.flatMap(({ logprobs }) => logprobs),
      lossSum: results.reduce((sum, { lossSum }) => sum + lossSum, 0),
    };
  }

  /** @see Trainer.forward */
  async forward(
    adapter: Adapter,
    data: readonly Datum[],
    temperature: number,
  ): Promise<Float32Array[]> {
    const results = await this.#inParts(
      data,
      (part) => this.#own.forward(adapter, part, temperature),
      (worker, part) => worker.call('forward', { adapter, data: part.map(copyOf), temperature }),
    );
    return results.flat();
  }

  /** Computes the first part on this thread and the others beside it. @returns their results in order. */
  async #inParts<Own, Other>(
    data: readonly Datum[],
    first: (part: readonly Datum[]) => Promise<Own>,
    other: (worker: WorkerCalls<GradientCalls>, part: readonly Datum[]) => Promise<Other>,
  ): Promise<(Own | Other)[]> {
    const [own, ...rest] = parts(data, this.#maxParts);
    const begun = rest.map((part, i) => other((this.#others[i] ??= this.#begin()), part));
    // Even after a failure all parts end, so that the next call does not run beside one of them.
    const ended = await Promise.allSettled([first(own!), ...begun]);
    return ended.map((end) => {
      if (end.status === 'rejected') throw end.reason;
      return end.value;
    });
  }

  #begin(): WorkerCalls<GradientCalls> {
    const worker = new WorkerCalls<GradientCalls>(new URL('./gradient-worker.js', import.meta.url));
    const fail = (error: unknown): void => {
      if (this.#isEnding) return;
      setImmediate(() => {
        throw error; // ends this thread as well, which cannot compute a whole step any more
      });
    };
    worker.died.catch(fail);
    // If it fails, each call tries again, and fails with the reason.
    worker.call('load', { directory: this.#directory }).catch(() => undefined);
    return worker;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isEnding = true;
    await Promise.all(this.#others.map((worker) => worker[Symbol.asyncDispose]()));
  }
}

/** Cuts the data into at most `count` runs of neighbors with about as many tokens each; none is empty. */
export function parts(data: readonly Datum[], count: number): (readonly Datum[])[] {
  const total = data.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const wanted = Math.max(1, Math.min(count, Math.floor(total / minTokensPerPart)));
  const found = Array.from({ length: wanted }, (): Datum[] => []);
  let before = 0;
  for (const datum of data) {
    const middle = before + datum.tokens.length / 2;
    found[Math.floor((middle / total) * wanted)]!.push(datum);
    before += datum.tokens.length;
  }
  return found.filter(({ length }) => length > 0); // one long datum may be all of two parts
}

/** A copy to send: a message takes the memory of a datum's arrays away from its sender. */
function copyOf({ tokens, targetTokens, inputs }: Datum): Datum {
  const entries = Object.entries(inputs).map(([name, values]) => [name, values.slice()]);
  return {
    tokens: tokens.slice(),
    targetTokens: targetTokens.slice(),
    inputs: Object.fromEntries(entries) as Datum['inputs'],
  };
}

import type { RunConfig } from '../../shared/run/run-config.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import type { Example } from '../../shared/tasks/examples/example.js';
import {
  openExamples,
  type Examples,
  type ExampleSource,
} from '../../shared/tasks/examples/training-examples.js';
import type { Task } from '../../shared/tasks/task.js';
import type { FittedConfig } from '../config.js';
import { batchOf } from '../settings/supervised.js';
import { EpochOrder } from '../tickets/curriculum.js';

export interface BatchPlanOptions {
  readonly examples: Examples;
  readonly batch: NonNullable<RunConfig['supervised']>['batch'];
  readonly epochs: number; // Infinity: no limit
  readonly seed: number; // of the order
}

/**
 * The examples of each step: all of them once per epoch, in another order each epoch. A batch is a function of the
 * place where it begins, and it begins where the one before has ended. So the place of the next example is all that a
 * checkpoint must hold, and a resumed run makes the batches of one that was never interrupted.
 */
export class BatchPlan {
  readonly #options: BatchPlanOptions;
  readonly #order: EpochOrder;
  readonly #end: number; // place after the last example
  readonly #lengths: (number | undefined)[] = []; // tokens, by the index of the example

  constructor(options: BatchPlanOptions) {
    const { seed, examples, epochs } = options;
    this.#options = options;
    this.#order = new EpochOrder(seed, examples.size);
    this.#end = epochs * examples.size;
  }

  /** Epochs that end before a place. */
  epochsAt(place: number): number {
    return place / this.#options.examples.size;
  }

  /** Place after the last example of the batch that begins at `place`; `place` itself if none is left. */
  endOf(place: number): number {
    const { batch } = this.#options;
    if (batch.by === 'examples') return Math.min(this.#end, place + batch.size);
    let end = place;
    for (let tokens = 0; end < this.#end; end++) {
      tokens += this.#lengthAt(end);
      if (tokens > batch.size && end > place) break;
    }
    return end;
  }

  /** The examples from one place to another. */
  examplesIn(start: number, end: number): Example[] {
    const { examples } = this.#options;
    return Array.from({ length: end - start }, (_, i) =>
      examples.at(this.#order.problemAt(start + i)),
    );
  }

  /** Number of batches from a place to the end of the run; Infinity without a limit of epochs. */
  stepsFrom(start: number): number {
    const { batch } = this.#options;
    if (this.#end === Infinity) return Infinity;
    if (batch.by === 'examples') return Math.max(0, Math.ceil((this.#end - start) / batch.size));
    let steps = 0;
    for (let place = start; place < this.#end; steps++) place = this.endOf(place);
    return steps;
  }

  #lengthAt(place: number): number {
    const index = this.#order.problemAt(place);
    return (this.#lengths[index] ??= this.#options.examples.at(index).tokens.length);
  }
}

/** What a run on examples trains on. */
export interface SupervisedPlan {
  readonly plan: BatchPlan;
  readonly heldOut: Examples;
  readonly digest: string; // of the examples
}

/**
 * Opens the examples of `--data` and divides them into steps.
 *
 * @returns undefined if the run trains on sampled answers.
 * @throws {UserError} if there are no examples, or they are wrong.
 */
export async function supervisedPlan(
  settings: FittedConfig,
  found: Pick<ExampleSource, 'tokenizer' | 'maxPositions'> & {
    readonly task: Task;
    readonly dataset: Dataset;
  },
): Promise<SupervisedPlan | undefined> {
  const { data, heldOutExamples: heldOut, maxTokens, seed, epochs = Infinity } = settings;
  if (data === undefined) return undefined;
  const { stop } = found.task;
  const examples = await openExamples(data, { ...found, stop, heldOut, maxTokens, seed });
  const batch = batchOf(settings);
  const plan = new BatchPlan({ examples: examples.train, batch, epochs, seed });
  return { plan, heldOut: examples.heldOut, digest: examples.digest };
}

import type { RunConfig } from '../../shared/run/run-config.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import type { Example } from '../../shared/tasks/examples/example.js';
import {
  isExample,
  openExamples,
  type Examples,
  type ExampleSource,
  type LeftOut,
} from '../../shared/tasks/examples/training-examples.js';
import type { NoSolution, Task } from '../../shared/tasks/task.js';
import type { FittedConfig } from '../config.js';
import { batchOf } from '../settings/supervised.js';
import { EpochOrder } from '../tickets/epoch-order.js';

/** With more examples than this, steps are estimated: the solver needs half a millisecond for each, and blocks the process. */
const mostCounted = 32_768;
const measuredExamples = 1_024;

interface BatchPlanOptions {
  readonly examples: Examples;
  readonly leftOutShare?: number; // about this part of them is left out; 0
  readonly batch: NonNullable<RunConfig['supervised']>['batch'];
  readonly epochs: number; // Infinity: no limit
  readonly seed: number; // of the order
}

/**
 * The examples of each step: all of them once per epoch, in another order each epoch. A batch is a function of the
 * place where it begins, and it begins where the one before has ended. So the place of the next example is all that a
 * checkpoint must hold, and a resumed run makes the batches of one that was never interrupted.
 *
 * A problem that is left out has a place in the order too, so it does not change the order of the others.
 */
export class BatchPlan {
  readonly #options: BatchPlanOptions;
  readonly #order: EpochOrder;
  readonly #end: number; // place after the last example
  readonly #lengths: (number | undefined)[] = []; // tokens, by the index of the example; 0: left out
  readonly #made = new Map<number, Example | NoSolution>(); // by index, until its batch is taken; the solver is slow

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

  /** Place after the batch that begins at `place`; `place` itself if no example is left. */
  endOf(place: number): number {
    const { batch, examples } = this.#options;
    let size = 0;
    for (let end = place; end < this.#end; end++) {
      if (size === 0 && end - place === 2 * examples.size) return place; // a whole epoch has none
      const length = this.#lengthAt(end);
      const more = batch.by === 'examples' ? Math.sign(length) : length;
      if (size > 0 && size + more > batch.size) return end;
      size += more;
    }
    return size > 0 ? this.#end : place;
  }

  /** The examples from one place to another, without those that are left out. */
  examplesIn(start: number, end: number): Example[] {
    const { examples } = this.#options;
    return Array.from({ length: end - start }, (_, i) => {
      const index = this.#order.problemAt(start + i);
      const made = this.#made.get(index) ?? examples.at(index);
      this.#made.delete(index);
      return made;
    }).filter((made) => isExample(made));
  }

  /** Number of batches from a place to the end of the run, estimated for many examples; Infinity without a limit of epochs. */
  stepsFrom(start: number): number {
    const { batch, examples, leftOutShare = 0 } = this.#options;
    if (this.#end === Infinity) return Infinity;
    if (batch.by === 'examples') {
      // Not counted one by one: the solver would search all problems before the first step.
      return Math.max(0, Math.ceil(((1 - leftOutShare) * (this.#end - start)) / batch.size));
    }
    if (examples.size > mostCounted) {
      const mean = this.#meanLength(start);
      // On average the last half example of a batch does not fit.
      const full = Math.max(mean, batch.size - mean / 2);
      return Math.max(0, Math.ceil(((this.#end - start) * mean) / full));
    }
    let steps = 0;
    for (let place = start, end; (end = this.endOf(place)) > place; steps++) {
      place = end;
      this.#made.clear(); // all examples together may take much memory
    }
    return steps;
  }

  /** In tokens, over some of the examples from a place on; one that is left out counts as 0. */
  #meanLength(start: number): number {
    const lengths = Array.from({ length: measuredExamples }, (_, i) => this.#lengthAt(start + i));
    return lengths.reduce((sum, length) => sum + length, 0) / measuredExamples;
  }

  #lengthAt(place: number): number {
    const index = this.#order.problemAt(place);
    const known = this.#lengths[index];
    if (known !== undefined) return known;
    const made = this.#options.examples.at(index);
    this.#made.set(index, made);
    return (this.#lengths[index] = isExample(made) ? made.tokens.length : 0);
  }
}

/** What a run on examples trains on. */
interface SupervisedPlan {
  readonly plan: BatchPlan;
  readonly heldOut: readonly Example[];
  readonly digest: string; // of the examples
  readonly leftOut: LeftOut;
  readonly uncompared: number; // examples that the task cannot read, so only their exact texts are compared
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
  const { train, leftOut, ...rest } = examples;
  const leftOutShare = leftOut.problems / Math.max(1, leftOut.checked);
  const plan = new BatchPlan({ examples: train, leftOutShare, batch, epochs, seed });
  return { ...rest, plan, leftOut };
}

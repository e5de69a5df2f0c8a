import { appendFile, mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { EvalEvent, StepEvent } from './history.js';

/**
 * A file of the run's folder with one JSON object a line. It is a view of the run's events, made anew
 * from them whenever a learner starts.
 */
export class Journal<Event> {
  readonly #path: string;
  readonly #entryOf: (event: Event) => object;

  private constructor(path: string, entryOf: (event: Event) => object) {
    this.#path = path;
    this.#entryOf = entryOf;
  }

  /** Writes the events so far; those of steps that a crash undid are not among them. */
  static async open<Event>(
    runDir: string,
    { name, entryOf }: JournalKind<Event>,
    events: readonly Event[],
  ): Promise<Journal<Event>> {
    await mkdir(runDir, { recursive: true });
    const journal = new Journal(join(runDir, name), entryOf);
    const partial = `${journal.#path}.partial`;
    await writeFile(partial, events.map((event) => journal.#line(event)).join(''));
    await rename(partial, journal.#path);
    return journal;
  }

  async append(event: Event): Promise<void> {
    await appendFile(this.#path, this.#line(event));
  }

  #line(event: Event): string {
    return `${JSON.stringify(this.#entryOf(event))}\n`;
  }
}

export interface JournalKind<Event> {
  readonly name: string;
  readonly entryOf: (event: Event) => object;
}

/** A line a step. */
export const metricsJournal: JournalKind<StepEvent> = {
  name: 'metrics.jsonl',
  entryOf: ({ step, version, at, metrics }) => ({
    step,
    version,
    time: new Date(at).toISOString(),
    ...metrics,
  }),
};

/** A line an evaluation, with the answers to each problem. */
export const evalsJournal: JournalKind<EvalEvent> = {
  name: 'evals.jsonl',
  entryOf: ({ at, result }) => ({ time: new Date(at).toISOString(), ...result }),
};

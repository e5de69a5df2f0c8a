import { appendFile, mkdir, open, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { EvalEvent, StepEvent } from './history.js';

/**
 * A file of the run's folder with one JSON object a line. It is a view of the run's events, rewritten
 * from them whenever a learner starts. What only the file has is kept: events may be damaged, and a
 * line of a step that a crash undid moves to a file beside it.
 */
export class Journal<Event> {
  readonly #path: string;
  readonly #kind: JournalKind<Event>;
  readonly #file: string; // identity of the file that this learner wrote

  private constructor(path: string, kind: JournalKind<Event>, file: string) {
    this.#path = path;
    this.#kind = kind;
    this.#file = file;
  }

  /**
   * Writes the events so far, and the lines of the file before that the events lack.
   *
   * @param until key of the last entry that the restored weights know: higher ones were undone.
   */
  static async open<Event>(
    runDir: string,
    kind: JournalKind<Event>,
    events: readonly Event[],
    until: number,
  ): Promise<Journal<Event>> {
    await mkdir(runDir, { recursive: true });
    const path = join(runDir, kind.name);
    const before = linesOf(await readFile(path, 'utf8').catch(() => ''), kind.key);
    const lines = linesOf(events.map((event) => lineOf(kind, event)).join(''), kind.key);
    const known = new Set(lines.map(({ key }) => key));
    const missing = before.filter(({ key }) => key <= until && !known.has(key));
    if (missing.length > 0) lines.push(...missing);
    lines.sort((a, b) => a.key - b.key);
    const kept = new Set(lines.map(({ id }) => id));
    const undone = before.filter(({ id }) => !kept.has(id));
    if (undone.length > 0) {
      await appendFile(
        join(runDir, undoneName(kind.name)),
        undone.map(({ text }) => text).join(''),
      );
    }
    const partial = `${path}.partial`;
    await writeFile(partial, lines.map(({ text }) => text).join(''));
    const file = identityOf(await stat(partial));
    await rename(partial, path);
    return new Journal(path, kind, file);
  }

  /** @throws {Error} if the file is not the one that this learner wrote: another one has begun. */
  async append(event: Event): Promise<void> {
    await using file = await open(this.#path, 'a');
    if (identityOf(await file.stat()) !== this.#file) {
      throw new Error(
        `${this.#path} was replaced while this learner wrote it, by another one or by hand`,
      );
    }
    await file.appendFile(lineOf(this.#kind, event));
  }
}

export interface JournalKind<Event> {
  readonly name: string;
  readonly entryOf: (event: Event) => object;
  /** The entry's field that says what it is about; it rises along the file. */
  readonly key: string;
}

interface Line {
  readonly text: string; // with its line break
  readonly key: number;
  readonly id: string; // tells two entries of one key apart
}

/** A last line that was cut off, and whatever else is no entry, is left out. */
function linesOf(text: string, key: string): Line[] {
  return text.split('\n').flatMap((line) => {
    try {
      const entry = JSON.parse(line) as Record<string, unknown>;
      const value = Number(entry[key]);
      const id = `${value} ${String(entry['time'])}`;
      return Number.isFinite(value) ? { text: `${line}\n`, key: value, id } : [];
    } catch {
      return [];
    }
  });
}

function lineOf<Event>({ entryOf }: JournalKind<Event>, event: Event): string {
  return `${JSON.stringify(entryOf(event))}\n`;
}

/** `metrics.undone.jsonl` beside `metrics.jsonl`. */
function undoneName(name: string): string {
  return name.replace(/\.jsonl$/, '.undone.jsonl');
}

function identityOf({ ino, birthtimeMs }: { ino: number; birthtimeMs: number }): string {
  return `${ino} ${birthtimeMs}`;
}

/** A line a step. */
export const metricsJournal: JournalKind<StepEvent> = {
  name: 'metrics.jsonl',
  key: 'step',
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
  key: 'version',
  entryOf: ({ at, result }) => ({ time: new Date(at).toISOString(), ...result }),
};

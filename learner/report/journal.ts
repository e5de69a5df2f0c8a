import { mkdir, open, rename, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { syncFolder, writeSynced } from '../../shared/base/durable-file.js';
import { readLines } from '../../shared/base/read-json.js';
import {
  noRoomReason,
  writeWhenRoom,
  type RoomWait,
} from '../../shared/service/telemetry/disk-room.js';
import { isShortened } from '../../shared/wire/shorter-event.js';
import type { EvalEvent, StepEvent } from './history.js';

/**
 * A file of the run's folder with one JSON object per line. It is a view of the run's events, rewritten
 * from them whenever a learner starts. Lines that only the file has are kept, since events may be
 * damaged; the line of a step that a crash rolled back moves to a file beside it.
 */
export class Journal<Event> {
  readonly #path: string;
  readonly #kind: JournalKind<Event>;
  readonly #file: string; // identity of the file that this learner created
  readonly #wait: RoomWait;
  #bytes: number; // length of the file without a partly written line

  private constructor(
    path: string,
    kind: JournalKind<Event>,
    { file, bytes, wait }: { file: string; bytes: number; wait: RoomWait },
  ) {
    this.#path = path;
    this.#kind = kind;
    this.#file = file;
    this.#bytes = bytes;
    this.#wait = wait;
  }

  /**
   * Writes the events so far, and the lines of the existing file that the events lack.
   *
   * @param isKept whether the restored weights contain the entry with a key: others were rolled back.
   * @param wait how long to wait for free disk space, here and in `append`.
   */
  static async open<Event>(
    runDir: string,
    kind: JournalKind<Event>,
    events: readonly Event[],
    isKept: (key: number) => boolean,
    wait: RoomWait,
  ): Promise<Journal<Event>> {
    const path = join(runDir, kind.name);
    const names = events.map((event) => nameOf(kind.entryOf(event), kind.key));
    const keys = new Set(names.map(({ key }) => key));
    const ids = new Set(names.map(({ id }) => id));
    const shortened = new Set(
      names.filter((_, i) => kind.isShortened?.(events[i]!)).map(({ id }) => id),
    );
    const whole = new Map<string, Line>(); // of shortened events, by id
    const onlyHere: Line[] = [];
    const undone: Line[] = [];
    for await (const line of linesOf(path, kind.key)) {
      if (!keys.has(line.key) && isKept(line.key)) onlyHere.push(line);
      else if (!ids.has(line.id)) undone.push(line);
      else if (shortened.has(line.id)) whole.set(line.id, line);
    }
    const file = await writeWhenRoom(kind.name, wait, async () => {
      await mkdir(runDir, { recursive: true });
      if (undone.length > 0) await addUndone(join(runDir, undoneName(kind.name)), undone, kind.key);
      return replace(path, merged(kind, events, onlyHere, whole));
    });
    return new Journal(path, kind, { file, bytes: (await stat(path)).size, wait });
  }

  /**
   * Writes a whole line. If the disk stays full until the learner stops, writes nothing: the events have
   * the entry.
   *
   * @throws {Error} if the file is not the one that this learner created, since another learner has started.
   */
  async append(event: Event): Promise<void> {
    const line = lineOf(this.#kind, event);
    await using file = await open(this.#path, 'a');
    if (identityOf(await file.stat()) !== this.#file) {
      throw new Error(
        `${this.#path} was replaced while this learner wrote it, by another learner or by hand`,
      );
    }
    try {
      await writeWhenRoom(this.#kind.name, this.#wait, async () => {
        try {
          await file.appendFile(line);
        } catch (caught) {
          await file.truncate(this.#bytes); // a full disk may have taken a part of the line
          throw caught;
        }
      });
      this.#bytes += Buffer.byteLength(line);
    } catch (caught) {
      if (noRoomReason(caught) === undefined) throw caught;
    }
  }
}

interface JournalKind<Event> {
  readonly name: string;
  readonly entryOf: (event: Event) => object;
  /** The entry's field that identifies it; it rises along the file. */
  readonly key: string;
  /** Whether the event lacks something that the line written with it has. */
  readonly isShortened?: (event: Event) => boolean; // absent: never
}

interface Line {
  readonly text: string; // with its line break
  readonly key: number;
  readonly id: string; // distinguishes two entries with the same key
}

function nameOf(entry: object, key: string): Pick<Line, 'key' | 'id'> {
  const { [key]: number, time } = entry as Record<string, unknown>;
  return { key: Number(number), id: `${Number(number)} ${String(time)}` };
}

/**
 * The entries of a file; none if there is no file. Leaves out lines that are not entries, such as a last line that was cut
 * off.
 */
async function* linesOf(path: string, key: string): AsyncGenerator<Line> {
  try {
    for await (const text of readLines(path)) {
      const name = nameIn(text, key);
      if (name !== undefined) yield { text: `${text}\n`, ...name };
    }
  } catch (caught) {
    if ((caught as NodeJS.ErrnoException).code !== 'ENOENT') throw caught;
  }
}

function nameIn(text: string, key: string): Pick<Line, 'key' | 'id'> | undefined {
  try {
    const name = nameOf(JSON.parse(text) as object, key);
    return Number.isFinite(name.key) ? name : undefined;
  } catch {
    return undefined;
  }
}

/** The lines of the events and those that only the file has, or has in full, in the order of their keys. */
function* merged<Event>(
  kind: JournalKind<Event>,
  events: readonly Event[],
  onlyHere: readonly Line[],
  whole: ReadonlyMap<string, Line>,
): Generator<string> {
  const made = events.map((event) => {
    const name = nameOf(kind.entryOf(event), kind.key);
    return whole.get(name.id) ?? { event, ...name };
  });
  // A line is made when it is written: all of them may be longer than a string can be.
  for (const each of [...made, ...onlyHere].sort((a, b) => a.key - b.key)) {
    yield 'text' in each ? each.text : lineOf(kind, each.event);
  }
}

/** Adds the lines to those of earlier crashes, each once. */
async function addUndone(path: string, undone: readonly Line[], key: string): Promise<void> {
  const earlier: Line[] = [];
  for await (const line of linesOf(path, key)) earlier.push(line);
  const ids = new Set(earlier.map(({ id }) => id));
  const all = [...earlier, ...undone.filter(({ id }) => !ids.has(id))];
  await replace(
    path,
    all.map(({ text }) => text),
  );
}

function lineOf<Event>({ entryOf }: JournalKind<Event>, event: Event): string {
  return `${JSON.stringify(entryOf(event))}\n`;
}

/** @returns the identity of the new file. */
async function replace(path: string, lines: Iterable<string>): Promise<string> {
  const partial = `${path}.partial`;
  await writeSynced(partial, inPieces(lines));
  const identity = identityOf(await stat(partial));
  await rename(partial, path);
  await syncFolder(dirname(path));
  return identity;
}

/** Joins lines to pieces of about a megabyte, so that each write has some. */
function* inPieces(lines: Iterable<string>): Generator<string> {
  let piece = '';
  for (const line of lines) {
    piece += line;
    if (piece.length < 2 ** 20) continue;
    yield piece;
    piece = '';
  }
  yield piece;
}

/** `metrics.undone.jsonl` beside `metrics.jsonl`. */
function undoneName(name: string): string {
  return name.replace(/\.jsonl$/, '.undone.jsonl');
}

function identityOf({ ino, birthtimeMs }: { ino: number; birthtimeMs: number }): string {
  return `${ino} ${birthtimeMs}`;
}

/** The journal with one line per step. */
export const metricsJournal: JournalKind<StepEvent> = {
  name: 'metrics.jsonl',
  key: 'step',
  isShortened,
  entryOf: ({ step, version, at, metrics }) => ({
    step,
    version,
    time: new Date(at).toISOString(),
    ...metrics,
  }),
};

/** The journal with one line per evaluation, with the answers to each problem. */
export const evalsJournal: JournalKind<EvalEvent> = {
  name: 'evals.jsonl',
  key: 'version',
  isShortened,
  entryOf: ({ at, result }) => ({ time: new Date(at).toISOString(), ...result }),
};

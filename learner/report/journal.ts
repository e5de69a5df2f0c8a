import { mkdir, open, readFile, rename, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { syncFolder, writeSynced } from '../../shared/base/durable-file.js';
import {
  noRoomReason,
  writeWhenRoom,
  type RoomWait,
} from '../../shared/service/telemetry/disk-room.js';
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
    const before = linesOf(await textOf(path), kind.key);
    const lines = linesOf(events.map((event) => lineOf(kind, event)).join(''), kind.key);
    const known = new Set(lines.map(({ key }) => key));
    lines.push(...before.filter(({ key }) => isKept(key) && !known.has(key)));
    lines.sort((a, b) => a.key - b.key);
    const kept = new Set(lines.map(({ id }) => id));
    const undone = before.filter(({ id }) => !kept.has(id));
    const text = textOfLines(lines);

    const file = await writeWhenRoom(kind.name, wait, async () => {
      await mkdir(runDir, { recursive: true });
      if (undone.length > 0) {
        const undonePath = join(runDir, undoneName(kind.name));
        const earlier = linesOf(await textOf(undonePath), kind.key);
        const ids = new Set(earlier.map(({ id }) => id));
        const all = [...earlier, ...undone.filter(({ id }) => !ids.has(id))];
        await replace(undonePath, textOfLines(all));
      }
      return replace(path, text);
    });
    return new Journal(path, kind, { file, bytes: Buffer.byteLength(text), wait });
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
}

interface Line {
  readonly text: string; // with its line break
  readonly key: number;
  readonly id: string; // distinguishes two entries with the same key
}

/** The entries in a text; leaves out lines that are not entries, such as a last line that was cut off. */
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

async function textOf(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '');
}

function textOfLines(lines: readonly Line[]): string {
  return lines.map(({ text }) => text).join('');
}

/** @returns the identity of the new file. */
async function replace(path: string, text: string): Promise<string> {
  const partial = `${path}.partial`;
  await writeSynced(partial, text);
  const identity = identityOf(await stat(partial));
  await rename(partial, path);
  await syncFolder(dirname(path));
  return identity;
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
  entryOf: ({ at, result }) => ({ time: new Date(at).toISOString(), ...result }),
};

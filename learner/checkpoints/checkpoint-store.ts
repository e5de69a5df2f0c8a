import type { Broker } from '../../shared/broker/broker.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { Checkpoint } from '../../shared/wire/ledger.js';
import { CheckpointFile } from './checkpoint-file.js';

/** A checkpoint, and which copy of it was found. */
export interface FoundCheckpoint {
  readonly checkpoint: Checkpoint;
  readonly where: string; // for a message
}

/** Where a checkpoint is to be; anywhere else it is a copy. */
export const ledger = 'the ledger';

export interface CheckpointStoreOptions {
  readonly broker: {
    readonly run: string;
    readonly ledger: Pick<Broker['ledger'], 'history' | 'write'>;
    readonly events: Pick<Broker['events'], 'emit' | 'newest' | 'every'>;
  };
  readonly runDir: string;
  readonly log: Logger;
}

/**
 * The checkpoints of a run: in the ledger, which decides, and two copies, since one damaged file must
 * not cost a run. The history has a copy of every checkpoint, the run's folder one of the newest,
 * which also outlasts a power failure.
 */
export class CheckpointStore {
  readonly #options: CheckpointStoreOptions;
  readonly #file: CheckpointFile;
  #serial = 0; // of the newest that was found or written
  #stateOnDisk: string | undefined;

  constructor(options: CheckpointStoreOptions) {
    this.#options = options;
    this.#file = new CheckpointFile(options.runDir, options.broker.run, options.log);
  }

  /** Path of the state that the copy in the run's folder names: it must not be deleted. */
  get stateOnDisk(): string | undefined {
    return this.#stateOnDisk;
  }

  /** Every checkpoint that is still known, the newest first; each once. */
  async *found(): AsyncGenerator<FoundCheckpoint, void, undefined> {
    const seen = new Set<number>();
    const few = await this.#readNewest();
    this.#serial = Math.max(0, ...few.map(({ checkpoint }) => serialOf(checkpoint)));
    for (const found of few.slice(0, 1)) {
      seen.add(serialOf(found.checkpoint));
      yield found;
    }
    // Rarely asked for: the history may hold very many.
    const { events } = this.#options.broker;
    const older: FoundCheckpoint[] = [];
    for await (const { checkpoint } of events.every('checkpoint')) {
      older.push({ checkpoint, where: 'the history' });
    }
    for (const found of newestFirst([...few, ...older])) {
      const serial = serialOf(found.checkpoint);
      if (seen.has(serial)) continue;
      seen.add(serial);
      yield found;
    }
  }

  /**
   * Writes a checkpoint: the ledger first, which refuses a learner that leads no more, then the copies.
   *
   * @throws {Error} if another learner leads.
   */
  async write(checkpoint: Checkpoint): Promise<void> {
    const { broker } = this.#options;
    const next: Checkpoint = { ...checkpoint, serial: ++this.#serial };
    await broker.ledger.write(next);
    await broker.events.emit({
      v: 1,
      at: Date.now(),
      kind: 'checkpoint',
      checkpoint: bounded(next),
    });
    if (await this.#file.write(next)) this.#stateOnDisk = next.statePath;
  }

  async #readNewest(): Promise<FoundCheckpoint[]> {
    const { broker } = this.#options;
    const [inLedger, event, inFolder] = await Promise.all([
      broker.ledger.history(),
      broker.events.newest('checkpoint'),
      this.#file.read(),
    ]);
    this.#stateOnDisk = inFolder?.statePath;
    const found = inLedger.map((checkpoint) => ({ checkpoint, where: ledger }));
    if (event !== undefined) {
      found.push({ checkpoint: event.checkpoint, where: 'the history' });
    }
    if (inFolder !== undefined) found.push({ checkpoint: inFolder, where: this.#file.path });
    return newestFirst(found);
  }
}

/** Of equals the first stays first; learners of before did not count their checkpoints. */
function newestFirst(found: readonly FoundCheckpoint[]): FoundCheckpoint[] {
  return found.toSorted((a, b) => serialOf(b.checkpoint) - serialOf(a.checkpoint));
}

function serialOf({ serial }: Checkpoint): number {
  return serial ?? 0;
}

/**
 * The checkpoint as the history keeps it. What difficulty-aware sampling has learnt of each problem grows
 * with the dataset, and the history keeps every checkpoint: after a damage it is learnt again.
 */
function bounded({ curriculum, ...rest }: Checkpoint): Checkpoint {
  return curriculum === undefined ? rest : { ...rest, curriculum: { ...curriculum, tried: [] } };
}

import type { Broker } from '../../shared/broker/broker.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { Checkpoint } from '../../shared/wire/ledger.js';
import { CheckpointFile } from './checkpoint-file.js';

/** A checkpoint, and the place where this copy was found. */
interface FoundCheckpoint {
  readonly checkpoint: Checkpoint;
  readonly where: string; // for messages
}

/** The authoritative place of a checkpoint; all other places hold copies. */
export const ledgerLabel = 'the ledger';

interface CheckpointStoreOptions {
  readonly broker: {
    readonly run: string;
    readonly ledger: Pick<Broker['ledger'], 'history' | 'write'>;
    readonly events: Pick<Broker['events'], 'emit' | 'newest' | 'every'>;
  };
  readonly runDir: string;
  readonly log: Logger;
}

/**
 * The checkpoints of a run. The ledger is authoritative, and there are two copies, so that one damaged
 * file does not cost the run: the history has a copy of every checkpoint, and the run's folder one of
 * the newest, which also survives a power failure.
 */
export class CheckpointStore {
  readonly #options: CheckpointStoreOptions;
  readonly #file: CheckpointFile;
  #serial = 0; // of the newest checkpoint found or written
  #stateOnDisk: string | undefined;

  constructor(options: CheckpointStoreOptions) {
    this.#options = options;
    this.#file = new CheckpointFile(options.runDir, options.broker.run, options.log);
  }

  /** Path of the state named by the copy in the run's folder; it must not be deleted. */
  get stateOnDisk(): string | undefined {
    return this.#stateOnDisk;
  }

  /** Yields every checkpoint that still exists, newest first, each once. */
  async *found(): AsyncGenerator<FoundCheckpoint, void, undefined> {
    const seen = new Set<number>();
    const newest = await this.#readNewest();
    this.#serial = Math.max(0, ...newest.map(({ checkpoint }) => serialOf(checkpoint)));
    for (const found of newest.slice(0, 1)) {
      seen.add(serialOf(found.checkpoint));
      yield found;
    }
    // Read only if the newest cannot be restored: the history may hold very many.
    const { events } = this.#options.broker;
    const older: FoundCheckpoint[] = [];
    for await (const { checkpoint } of events.every('checkpoint')) {
      older.push({ checkpoint, where: 'the history' });
    }
    for (const found of newestFirst([...newest, ...older])) {
      const serial = serialOf(found.checkpoint);
      if (seen.has(serial)) continue;
      seen.add(serial);
      yield found;
    }
  }

  /**
   * Writes a checkpoint to the ledger, which refuses a learner that no longer leads, then to the copies.
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
      checkpoint: withoutResults(next),
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
    const found = inLedger.map((checkpoint) => ({ checkpoint, where: ledgerLabel }));
    if (event !== undefined) {
      found.push({ checkpoint: event.checkpoint, where: 'the history' });
    }
    if (inFolder !== undefined) found.push({ checkpoint: inFolder, where: this.#file.path });
    return newestFirst(found);
  }
}

/** Stable, because earlier learners wrote checkpoints without a serial number. */
function newestFirst(found: readonly FoundCheckpoint[]): FoundCheckpoint[] {
  return found.toSorted((a, b) => serialOf(b.checkpoint) - serialOf(a.checkpoint));
}

function serialOf({ serial }: Checkpoint): number {
  return serial ?? 0;
}

/**
 * The checkpoint as the history stores it, without the per-problem results of difficulty-aware sampling.
 * They grow with the dataset and the history keeps every checkpoint; if the ledger is lost, they are learned again.
 */
function withoutResults({ curriculum, ...rest }: Checkpoint): Checkpoint {
  return curriculum === undefined ? rest : { ...rest, curriculum: { ...curriculum, tried: [] } };
}

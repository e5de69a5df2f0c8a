import { join } from 'node:path';
import { z } from 'zod';
import { replaceFile } from '../../shared/base/durable-file.js';
import { errorText } from '../../shared/base/errors.js';
import { readJson } from '../../shared/base/read-json.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { Checkpoint } from '../../shared/wire/ledger.js';

const Content = z.strictObject({ v: z.literal(1), run: z.string(), checkpoint: Checkpoint });

/**
 * The copy of the newest checkpoint in the run's folder. Unlike the ledger it is synced to disk:
 * nats-server leaves acknowledged writes in the page cache for up to two minutes, so after a power failure
 * the ledger may be that much older, and name a state that has been deleted since.
 */
export class CheckpointFile {
  readonly path: string;
  readonly #run: string;
  readonly #log: Logger;

  constructor(runDir: string, run: string, log: Logger) {
    this.path = join(runDir, 'checkpoint.json');
    this.#run = run;
    this.#log = log;
  }

  /** @returns undefined if there is no readable checkpoint of this run. */
  async read(): Promise<Checkpoint | undefined> {
    try {
      const { run, checkpoint } = Content.parse(await readJson(this.path));
      if (run === this.#run) return checkpoint;
      this.#log.warn(
        { file: this.path, run },
        'checkpoint in the run folder belongs to another run',
      );
    } catch (caught) {
      const isMissing = caught instanceof Error && 'code' in caught && caught.code === 'ENOENT';
      if (isMissing) return undefined;
      const reason = errorText(caught);
      this.#log.warn({ file: this.path, reason }, 'checkpoint in the run folder unreadable');
    }
    return undefined;
  }

  /** @returns whether it is on disk; if not, the run continues, since NATS has the checkpoint too. */
  async write(checkpoint: Checkpoint): Promise<boolean> {
    if (await this.#isBehind(checkpoint)) {
      this.#log.warn({ file: this.path }, 'another learner has written a newer checkpoint');
      return false;
    }
    try {
      const content = { v: 1, run: this.#run, checkpoint } satisfies z.input<typeof Content>;
      await replaceFile(this.path, `${JSON.stringify(content, undefined, 2)}\n`);
      return true;
    } catch (caught) {
      const reason = errorText(caught);
      this.#log.warn({ file: this.path, reason }, 'checkpoint not copied to the run folder');
      return false;
    }
  }

  /** Whether this learner was stopped since the ledger took its checkpoint, and its successor wrote here. */
  async #isBehind({ serial = 0, ticketKey }: Checkpoint): Promise<boolean> {
    const there = await this.read();
    const isOurs = there?.ticketKey?.secret === ticketKey?.secret;
    return there !== undefined && isOurs && (there.serial ?? 0) > serial;
  }
}

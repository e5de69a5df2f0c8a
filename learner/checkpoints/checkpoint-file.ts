import { join } from 'node:path';
import { z } from 'zod';
import { replaceFile } from '../../shared/base/durable-file.js';
import { errorText } from '../../shared/base/errors.js';
import { readJson } from '../../shared/base/read-json.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { Checkpoint } from '../../shared/wire/ledger.js';

const Content = z.strictObject({ v: z.literal(1), run: z.string(), checkpoint: Checkpoint });

/**
 * The newest checkpoint in the run's folder. It is synced, as the ledger is not: nats-server leaves
 * what it acknowledged to the operating system for up to two minutes, so after a power failure its
 * ledger may be that much behind, and name a state that has been deleted since.
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

  /** @returns undefined if there is none of this run, or none that can be read. */
  async read(): Promise<Checkpoint | undefined> {
    try {
      const { run, checkpoint } = Content.parse(await readJson(this.path));
      if (run === this.#run) return checkpoint;
      this.#log.warn(
        { file: this.path, run },
        'the checkpoint in the run folder is of another run',
      );
    } catch (caught) {
      const isMissing = caught instanceof Error && 'code' in caught && caught.code === 'ENOENT';
      if (isMissing) return undefined;
      const reason = errorText(caught);
      this.#log.warn({ file: this.path, reason }, 'the checkpoint in the run folder is unreadable');
    }
    return undefined;
  }

  /** @returns whether it is on the disk; a run goes on without, as NATS has the checkpoint too. */
  async write(checkpoint: Checkpoint): Promise<boolean> {
    try {
      const content = { v: 1, run: this.#run, checkpoint } satisfies z.input<typeof Content>;
      await replaceFile(this.path, `${JSON.stringify(content, undefined, 2)}\n`);
      return true;
    } catch (caught) {
      const reason = errorText(caught);
      this.#log.warn({ file: this.path, reason }, 'no copy of the checkpoint in the run folder');
      return false;
    }
  }
}

import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A file system of its own at a folder, so small that a test can fill it. Linux, as root. */
export class SmallDisk implements Disposable {
  readonly #filler: string;

  private constructor(readonly folder: string) {
    this.#filler = join(folder, 'filler');
  }

  /** @returns undefined where this user may not mount anything. */
  static at(folder: string, bytes: number): SmallDisk | undefined {
    mkdirSync(folder, { recursive: true });
    try {
      execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'tmpfs', folder], {
        stdio: 'ignore',
      });
    } catch {
      return undefined;
    }
    return new SmallDisk(folder);
  }

  /** Takes all the room that is left. */
  fill(): void {
    const { bavail, bsize } = statfsSync(this.folder);
    try {
      writeFileSync(this.#filler, Buffer.alloc(bavail * bsize));
    } catch (caught) {
      // Somebody took some of it between the two calls: then it is full all the same.
      if ((caught as NodeJS.ErrnoException).code !== 'ENOSPC') throw caught;
    }
  }

  /** Gives it back. */
  clear(): void {
    rmSync(this.#filler);
  }

  [Symbol.dispose](): void {
    execFileSync('umount', ['--lazy', this.folder]); // a process may still have it open
  }
}

import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';

/** A file system mounted at a folder, small enough for a test to fill it. Linux, as root. */
export class SmallDisk implements Disposable {
  readonly #filler: string;

  private constructor(readonly folder: string) {
    this.#filler = join(folder, 'filler');
  }

  /** @returns undefined if this user may not mount file systems. */
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

  /** Fills the remaining space; again, what has been freed since. */
  fill(): void {
    const { bavail, bsize } = statfsSync(this.folder);
    try {
      appendFileSync(this.#filler, Buffer.alloc(bavail * bsize));
    } catch (caught) {
      // Another process took some space between the two calls; the disk is full nevertheless.
      if ((caught as NodeJS.ErrnoException).code !== 'ENOSPC') throw caught;
    }
  }

  /** Keeps the disk full, whatever its users delete, until `seen` is settled. */
  async keepFullUntil(seen: Promise<void>): Promise<void> {
    const filling = setInterval(() => {
      this.fill();
    }, 50);
    try {
      this.fill();
      await seen;
    } finally {
      clearInterval(filling);
    }
  }

  /** Frees the space. */
  clear(): void {
    rmSync(this.#filler);
  }

  [Symbol.dispose](): void {
    execFileSync('umount', ['--lazy', this.folder]); // a process may still have it open
  }
}

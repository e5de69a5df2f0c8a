import { open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { UserError } from '../shared/base/errors.js';
import { makeFolder } from '../shared/base/make-folder.js';

/**
 * Locks a folder against other processes until disposed. A lock whose holder has died is taken over.
 *
 * @throws {UserError} if a running process holds it.
 */
export async function lockFolder(folder: string): Promise<AsyncDisposable> {
  await makeFolder(folder);
  const path = join(folder, '.lock');
  for (;;) {
    try {
      await using file = await open(path, 'wx');
      try {
        await file.write(String(process.pid));
      } catch (caught) {
        await rm(path, { force: true }); // the disk is full
        throw caught;
      }
      return { [Symbol.asyncDispose]: () => rm(path, { force: true }) };
    } catch (caught) {
      if ((caught as NodeJS.ErrnoException).code !== 'EEXIST') throw caught;
    }
    const holder = Number(await readFile(path, 'utf8').catch(() => ''));
    if (Number.isInteger(holder) && holder > 0 && isAlive(holder)) {
      throw new UserError(`process ${holder} is using ${folder}; wait until it ends, or end it`);
    }
    await rm(path, { force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (caught) {
    return (caught as NodeJS.ErrnoException).code === 'EPERM'; // it is another user's
  }
}

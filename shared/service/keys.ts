import { createHash, timingSafeEqual } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { isIPv4 } from 'node:net';
import { errorText, UserError } from '../base/errors.js';

/** Whether a client sent the key; the comparison takes as long for a nearly right key as for any other. */
export function isSameKey(given: string, key: string): boolean {
  return timingSafeEqual(digest(given), digest(key));
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/** Whether only programs of this machine reach a server that listens on `host`. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}

/**
 * The text of a file that holds a secret.
 *
 * @param flag that named the file, for the complaint.
 * @throws {UserError} if it cannot be read, or every user of this machine may read it.
 */
export async function readSecretFile(path: string, flag: string): Promise<string> {
  try {
    const text = await readFile(path, 'utf8');
    const { mode } = await stat(path);
    if ((mode & 0o007) === 0) return text;
  } catch (cause) {
    throw new UserError(`cannot read ${flag} ${path} (${errorText(cause)})`, { cause });
  }
  throw new UserError(
    `${flag} ${path} holds a secret that every user of this machine may read; chmod 600 it, or mount it with mode 0400`,
  );
}

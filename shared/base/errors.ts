import { z } from 'zod';

/** Retrying cannot help: the input itself is wrong. A consumer dead-letters the message. */
export class PermanentError extends Error {
  override readonly name: string = 'PermanentError';
}

/**
 * The user must change something before this can work: a flag, a file, an address. The message names the
 * setting, the value and the remedy, so it is printed without a stack.
 */
export class UserError extends Error {
  override readonly name: string = 'UserError';
}

/** Returns the message of a caught value, to be quoted in another message. */
export function errorText(caught: unknown): string {
  if (caught instanceof z.core.$ZodError) {
    // Its own message is multi-line JSON.
    return caught.issues
      .map(({ path, message }) => [path.map(String).join('.'), message].filter(Boolean).join(': '))
      .join('; ');
  }
  return caught instanceof Error ? caught.message : String(caught);
}

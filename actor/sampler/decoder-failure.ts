import { errorText, PermanentError, UserError } from '../../shared/base/errors.js';
import type { Failure } from './decoder-messages.js';

/** What of an error decides what happens next, in a form that crosses to another thread. */
export function toFailure(error: unknown): Failure {
  const kind =
    error instanceof UserError ? 'user' : error instanceof PermanentError ? 'permanent' : 'other';
  return { kind, message: errorText(error) };
}

/** The error again, in the class that it had. */
export function fromFailure({ kind, message }: Failure): Error {
  switch (kind) {
    case 'user':
      return new UserError(message);
    case 'permanent':
      return new PermanentError(message);
    case 'other':
      return new Error(message);
  }
}

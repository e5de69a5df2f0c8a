import assert from 'node:assert/strict';
import { UserError } from '../../shared/base/errors.js';

/** The text of the UserError that a call must end with. */
export function complaintOf(call: () => unknown): string {
  try {
    call();
  } catch (caught) {
    assert(caught instanceof UserError);
    return caught.message;
  }
  return assert.fail('it was accepted');
}

/** The text of the UserError that an asynchronous call must end with. */
export async function asyncComplaintOf(call: () => Promise<unknown>): Promise<string> {
  try {
    await call();
  } catch (caught) {
    assert(caught instanceof UserError, String(caught));
    return caught.message;
  }
  return assert.fail('it was accepted');
}

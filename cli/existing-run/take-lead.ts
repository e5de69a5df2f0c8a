import { UserError } from '../../shared/base/errors.js';
import type { Broker } from '../../shared/broker/broker.js';
import { expiryOf } from '../../shared/wire/ledger.js';

/**
 * Leads a run in place of a learner, so that none begins meanwhile. Waits for the lease of a learner that was killed.
 *
 * @param holder name in the lease.
 * @param refusal message of the error if a learner leads the run.
 * @throws {UserError} if a learner leads the run.
 */
export async function takeLead(
  { ledger }: Pick<Broker, 'ledger'>,
  holder: string,
  refusal: string,
  signal: AbortSignal,
): Promise<AsyncDisposable> {
  const leader = await ledger.leader();
  // Longer than the lease is valid without renewal.
  const patience = AbortSignal.timeout((leader === undefined ? 0 : expiryOf(leader)) + 10_000);
  try {
    return await ledger.lead(holder, AbortSignal.any([signal, patience]));
  } catch (caught) {
    if (!patience.aborted) throw caught;
    throw new UserError(refusal, { cause: caught });
  }
}

import { z } from 'zod';
import { PermanentError } from '../base/errors.js';

/** Why a message was given up, for programs that read its dead letter; the sentence beside it is for people. */
export const DeathCause = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('outdated') }), // the group grew too old while it was sampled: no fault
  z.object({
    kind: z.literal('not_finite'), // the group has logprobs that are not finite: the policy may be broken
    version: z.coerce.number().int().nonnegative(), // of the policy that drew the token
  }),
  z.object({ kind: z.literal('other') }),
]);
export type DeathCause = z.infer<typeof DeathCause>;

/** A failure whose dead letter says its cause. */
export class GivenUp extends PermanentError {
  override readonly name: string = 'GivenUp';

  constructor(
    message: string,
    readonly deathCause: DeathCause,
  ) {
    super(message);
  }
}

/** @param version of the policy that drew the token whose logprob is not finite. */
export function notFinite(version: number): GivenUp {
  return new GivenUp(
    `not finite: policy version ${version} drew tokens whose logprobs are no finite numbers`,
    { kind: 'not_finite', version },
  );
}

import { z } from 'zod';
import { PermanentError } from '../base/errors.js';

/** The machine-readable reason in a dead letter; the message text beside it is for people. */
export const DeathCause = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('outdated') }), // the group became too old during sampling: not an error
  z.object({
    kind: z.literal('not_finite'), // the group has logprobs that are not finite: the policy may be broken
    version: z.coerce.number().int().nonnegative(), // of the policy that drew the token
  }),
  z.object({ kind: z.literal('other') }),
]);
export type DeathCause = z.infer<typeof DeathCause>;

export const deathCauses = DeathCause.options.map(({ shape }) => shape.kind.value);

/** A failure that puts its cause into the dead letter. */
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
    `not finite: policy version ${version} drew tokens whose logprobs are not finite`,
    { kind: 'not_finite', version },
  );
}

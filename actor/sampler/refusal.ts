import { Counter } from 'prom-client';
import { PermanentError } from '../../shared/base/errors.js';
import { WeightsNotFinite } from '../../shared/model/lora.js';
import type { CanaryRefusal } from '../../shared/wire/actor-lease.js';

const refusedVersions = new Counter({
  name: 'rl_actor_policies_refused_total',
  help: 'Refusals of a policy version by this actor, one for each attempt, because its weights are damaged or not finite, its canary is not reproduced or missing (with --require-canary), or it could not be loaded now.',
  labelNames: ['reason'],
});

/** The sampler does not reproduce a version's canary: it does not sample with the weights, temperature or arithmetic that it should. */
export class CanaryNotReproduced extends PermanentError {
  override readonly name = 'CanaryNotReproduced';

  constructor(
    message: string,
    readonly finding: Omit<CanaryRefusal, 'attempts'>,
  ) {
    super(message);
  }
}

/** A version has no canary, and this actor samples with no version that is not proven. */
export class CanaryMissing extends PermanentError {
  override readonly name = 'CanaryMissing';

  constructor() {
    super(
      "it was published without a canary, and --require-canary is given: the learner's log has the reason, and the next version may have one",
    );
  }
}

/** @param before the refusal until now: attempts at the same version are counted. */
export function refusalOf(
  finding: CanaryNotReproduced['finding'],
  before: CanaryRefusal | undefined,
): CanaryRefusal {
  const attempts = before?.version === finding.version ? before.attempts : 0;
  return { ...finding, attempts: attempts + 1 };
}

/** Counts an attempt at which this actor refused a version. @returns why it did. */
export function countRefusal(error: unknown): Reason {
  const reason = reasonOf(error);
  refusedVersions.inc({ reason });
  return reason;
}

type Reason = 'not_finite' | 'canary' | 'no_canary' | 'damaged' | 'not_loaded';

function reasonOf(error: unknown): Reason {
  if (!(error instanceof PermanentError)) return 'not_loaded'; // the same attempt may succeed later
  if (error instanceof WeightsNotFinite) return 'not_finite';
  if (error instanceof CanaryMissing) return 'no_canary';
  return error instanceof CanaryNotReproduced ? 'canary' : 'damaged';
}

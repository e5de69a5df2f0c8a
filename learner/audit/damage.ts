import type { MinibatchResult } from '../step/minibatch-pass.js';
import type { TrainedGroup } from '../step/collected-step.js';

/** The pull of false claims, as a multiple of an honest group's, up to which a step may stay. */
const maxPull = 5;

/**
 * Finds the quarantined actors whose groups dominated a step: they have more than half of the pull on
 * the weights, and over five times the pull that honest claims would have given them.
 *
 * With `cispo` up to an upper threshold of 5 this never happens: its ratio is bounded, so false groups
 * count at most five times. `importance_sampling` has no bound, `ppo` none where the advantage is
 * negative, and the loss of `dro` grows with the gap. One such claim dominates the step and inflates the
 * optimizer's second moment for many steps after it, so the weights from before the step must be restored.
 *
 * @param trained the groups of the step, and `results` in the same order.
 * @returns the actors; none if the step may stay.
 */
export function damagingActors(
  trained: readonly TrainedGroup[],
  results: readonly Pick<MinibatchResult, 'pulls'>[],
  isQuarantined: (actor: string) => boolean,
): string[] {
  const actors = trained.map(({ group }) => group.scored.group.actor);
  if (!actors.some(isQuarantined)) return [];
  const pulls = results.flatMap((result) => result.pulls());
  let all = 0;
  let theirs = 0;
  let honest = 0; // their pull, had their claims been honest
  let end = 0;
  for (const { group } of trained) {
    const { actor, rollouts } = group.scored.group;
    for (const { actual, onPolicy } of pulls.slice(end, (end += rollouts.length))) {
      all += actual;
      if (!isQuarantined(actor)) continue;
      theirs += actual;
      honest += onPolicy;
    }
  }
  const isDamaged = theirs > all / 2 && theirs > maxPull * honest;
  return isDamaged ? [...new Set(actors)].filter(isQuarantined) : [];
}

/** False claims dominated a step: the run returns to its last checkpoint, without the groups of these actors. */
export class StepDamaged extends Error {
  override readonly name = 'StepDamaged';

  constructor(step: number, actors: readonly string[]) {
    super(`step ${step} followed the false logprobs of ${actors.join(', ')}, now quarantined`);
  }
}

import type { MinibatchResult } from './minibatch-pass.js';
import type { TrainedGroup } from './step-report.js';

/** How much stronger than an honest group one may pull, before it matters that it was a lie. */
const maxPull = 5;

/**
 * Whether groups of quarantined actors have decided where a step went: more than half of the pull at
 * the weights is theirs, and it is over five times of what honest claims would have given them.
 *
 * With `cispo` up to an upper threshold of 5 this never happens: its ratio is bounded, and groups of a liar
 * count at most five times. `importance_sampling` has no bound, `ppo` none where the advantage is
 * negative, `dro` grows with the gap. One such claim decides the step and swells the optimizer's second
 * moment for long after it, so nothing less than the weights of before will do.
 *
 * @param trained the groups of the step, and `results` in the same order.
 * @returns the actors, none if the step may stay.
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
  let honest = 0; // what theirs would be with honest claims
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

/** The run goes back to its last checkpoint, without the groups of these actors. */
export class StepDamaged extends Error {
  override readonly name = 'StepDamaged';

  constructor(step: number, actors: readonly string[]) {
    super(`step ${step} followed the false logprobs of ${actors.join(', ')}, now quarantined`);
  }
}

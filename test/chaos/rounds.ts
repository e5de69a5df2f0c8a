import { createRandom } from '../../shared/base/random.js';
import { chaos, plans, type ChaosOptions, type ChaosResult } from './chaos.js';
import { chaosOfLauncher, launchPlan, nameOfLaunch } from './launcher.js';
import { nameOf } from './mishaps.js';

/** The kinds of rounds; three consecutive seeds have one of each. */
const scenes = ['processes', 'attacks', 'launcher'] as const;

export function sceneOf(seed: number): (typeof scenes)[number] {
  return scenes[seed % scenes.length]!;
}

/** The round of a seed: a run with each mishap of its scene, and its audit. */
export function playRound(options: ChaosOptions): Promise<ChaosResult> {
  const scene = sceneOf(options.seed);
  return scene === 'launcher' ? chaosOfLauncher(options) : chaos(scene, options);
}

/** The names of the mishaps of a round. */
export function namesOf(seed: number): string[] {
  const random = createRandom(`chaos ${seed}`);
  const scene = sceneOf(seed);
  if (scene === 'launcher') return launchPlan(random).map((mishap) => nameOfLaunch(mishap));
  return plans[scene](random).map((mishap) => nameOf(mishap));
}

/** The names of all mishaps, each once. */
export function everyName(): string[] {
  return [...new Set(scenes.flatMap((_, seed) => namesOf(seed)))].sort();
}

import { setTimeout as sleep } from 'node:timers/promises';
import { createRandom } from '../../shared/base/random.js';
import { until } from '../support/waiting.js';
import { finish, type Outcome } from './finish.js';
import { attackPlan, nameOf, processPlan, strike, type Aftermath, type Mishap } from './mishaps.js';
import { shapeOf } from './shape.js';
import { begins, defaultStillMs, StillWatch } from './still-watch.js';
import { World } from './world.js';

export interface ChaosOptions {
  readonly seed: number;
  /** No more mishaps after this many seconds of training. */
  readonly maxSeconds: number;
  /** Training stands still if no step comes for this many milliseconds while nothing is held down. */
  readonly stillMs?: number;
  /** Only mishaps whose names contain this. */
  readonly only?: string | undefined;
  readonly report: (line: string) => void;
}

export interface ChaosResult extends Outcome {
  readonly seed: number;
  readonly mishaps: Readonly<Record<string, number>>;
  readonly seconds: number;
  /** Longest time without a step while nothing was held down, in seconds. */
  readonly stillSeconds: number;
  /** Processes that ended by themselves, by name and exit code. */
  readonly ownEnds: Readonly<Record<string, number>>;
}

/** The mishaps of rounds whose services are started one by one. */
export const plans = { processes: processPlan, attacks: attackPlan };

/**
 * Trains while each mishap happens once, the next one after training has continued after the
 * previous one; then ends the run and audits it.
 */
export async function chaos(
  scene: keyof typeof plans,
  options: ChaosOptions,
): Promise<ChaosResult> {
  const { seed, maxSeconds, stillMs = defaultStillMs, only = '', report } = options;
  const startedAt = performance.now();
  const secondsSoFar = () => (performance.now() - startedAt) / 1_000;
  const random = createRandom(`chaos ${seed}`);
  const mishaps: Record<string, number> = {};
  const violations: string[] = [];
  const shape = shapeOf(seed);
  report(`${scene}: ${JSON.stringify(shape)}`);

  await using world = await World.start(`chaos-${seed}`, shape, report);
  const still = new StillWatch(stillMs, () => world.witness.steps);
  const looking = setInterval(() => {
    still.look();
  }, 200);
  using _looking = {
    [Symbol.dispose]: () => {
      clearInterval(looking);
    },
  };

  const goesOn = async (steps: number): Promise<boolean> => {
    const goal = world.witness.steps + steps;
    await until(() => world.witness.steps >= goal || still.isStill || hasStopped(world));
    if (still.isStill) {
      for (const { name, process } of world.kept.values()) report(`${name}:\n${process.tail}`);
    }
    return !still.isStill;
  };

  let isAlive = await begins(still, () => world.witness.steps > 0);
  // A torn ledger can lose two checkpoints.
  if (isAlive && scene === 'attacks') isAlive = await goesOn(8);
  const trainingFrom = secondsSoFar();
  const plan = plans[scene](random).filter((mishap) => nameOf(mishap).includes(only));
  for (const mishap of plan) {
    if (!isAlive || hasStopped(world) || secondsSoFar() - trainingFrom > maxSeconds) break;
    const name = nameOf(mishap);
    report(`${secondsSoFar().toFixed(0)} s, ${world.witness.steps} steps trained: ${name}`);
    mishaps[name] = (mishaps[name] ?? 0) + 1;
    const aftermath = await underWatch(still, mishap, () => strike(world, mishap, random));
    // Sometimes the next mishap comes before the world has recovered.
    if (aftermath.steps > 1 || random.int(3) > 0) isAlive = await goesOn(aftermath.steps);
    else await sleep(random.int(1_000));
    violations.push(...((await aftermath.end?.()) ?? []));
  }
  if (isAlive) isAlive = await goesOn(1);

  const outcome = await finish(world, { isAlive, isStopped: hasStopped(world), stillMs, report });
  const found = [...still.violations, ...violations, ...ownEnds(world).violations];
  return {
    ...outcome,
    ...{ seed, mishaps, seconds: secondsSoFar(), stillSeconds: still.longestMs / 1_000 },
    violations: [...found, ...outcome.violations],
    ownEnds: ownEnds(world).counts,
  };
}

/** A process held down by this suite is an outage; a lie is not, since training must withstand it. */
async function underWatch(
  still: StillWatch,
  mishap: Mishap,
  work: () => Promise<Aftermath>,
): Promise<Aftermath> {
  const name = nameOf(mishap);
  if (mishap.kind === 'lie') {
    still.after(name);
    return await work();
  }
  using _outage = still.outage(name);
  return await work();
}

/** A learner that cannot trust the stored state may end with exit code 2 and report it. */
function hasStopped(world: World): boolean {
  return [...world.kept.values()].some(
    ({ name, lastEnd }) =>
      name.startsWith('learner') &&
      lastEnd?.code === 2 &&
      /ledger|checkpoint/i.test(lastEnd.words) &&
      world.hasBeenDamaged,
  );
}

/** Processes that ended by themselves. Crashes are counted; no service has another reason to end. */
function ownEnds(world: World): { counts: Record<string, number>; violations: string[] } {
  const counts: Record<string, number> = {};
  const violations: string[] = [];
  for (const { name, ownEnds: codes } of world.kept.values()) {
    for (const code of codes) {
      const key = `${name} with code ${code ?? 'none'}`;
      counts[key] = (counts[key] ?? 0) + 1;
    }
    const odd = codes.find((code) => code === 0 || (code !== 1 && !hasStopped(world)));
    if (odd !== undefined) violations.push(`${name} ended by itself with code ${odd ?? 'none'}`);
  }
  return { counts, violations };
}

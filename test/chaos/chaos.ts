import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ticketOf } from '../../shared/broker/dead-letter-watch.js';
import { createRandom } from '../../shared/random.js';
import { orderOf } from '../../shared/wire/ticket-ids.js';
import { until } from '../support/broker.js';
import { audit, type Audit } from './audit.js';
import { Lineages } from './lineage.js';
import { nameOf, plan, strike } from './mishaps.js';
import { rebuild, saved } from './rebuild.js';
import type { Recorded } from './witness.js';
import { settings, World } from './world.js';

export interface ChaosOptions {
  readonly seed: number;
  /** No more of them after so many seconds of training. */
  readonly maxSeconds: number;
  /** Without a step for so long, training stands still, in milliseconds. */
  readonly stillMs?: number;
  readonly report: (line: string) => void;
}

export interface ChaosResult extends Audit {
  readonly seed: number;
  readonly mishaps: Readonly<Record<string, number>>;
  readonly steps: number; // of the surviving weights
  readonly seconds: number;
  /** Ends of processes that nobody had ended, by name and exit code. */
  readonly ownEnds: Readonly<Record<string, number>>;
}

/**
 * Trains while things go wrong, each of them once, one after the other as training goes on after the
 * one before; then lets the run come to its end and has it audited.
 */
export async function chaos(options: ChaosOptions): Promise<ChaosResult> {
  const { seed, maxSeconds, stillMs = 600_000, report } = options;
  const startedAt = performance.now();
  const secondsSoFar = () => (performance.now() - startedAt) / 1_000;
  const random = createRandom(`chaos ${seed}`);
  const mishaps: Record<string, number> = {};
  const violations: string[] = [];

  await using world = await World.start(`chaos-${seed}`, report);
  const goesOn = async (what: string): Promise<boolean> => {
    const goal = world.steps + 1;
    const deadline = performance.now() + stillMs;
    await until(() => world.steps >= goal || performance.now() > deadline);
    if (world.steps >= goal) return true;
    violations.push(`training stands still after ${what}`);
    for (const { name, process } of world.kept.values()) report(`${name}:\n${process.tail}`);
    return false;
  };

  let isAlive = await goesOn('the start');
  const trainingFrom = secondsSoFar(); // processes take their time to start on a busy machine
  for (const mishap of plan(random)) {
    if (!isAlive || secondsSoFar() - trainingFrom > maxSeconds) break;
    const name = nameOf(mishap);
    report(`${secondsSoFar().toFixed(0)} s, ${world.steps} steps trained: ${name}`);
    mishaps[name] = (mishaps[name] ?? 0) + 1;
    await strike(world, mishap, random);
    // Sometimes the next one comes before the world has recovered.
    if (random.int(3) > 0) isAlive = await goesOn(name);
    else await sleep(random.int(1_000));
  }
  if (!isAlive) return { ...nothing, violations, seed, mishaps, ...ending(world) };
  await goesOn('the last of them');

  const outcome = await finish(world, stillMs, report);
  violations.push(...outcome.violations);
  return { ...outcome, violations, seed, mishaps, ...ending(world) };

  function ending({ kept }: World): Pick<ChaosResult, 'ownEnds' | 'seconds'> {
    const ownEnds: Record<string, number> = {};
    for (const { name, ownEnds: codes } of kept.values()) {
      for (const code of codes) {
        const key = `${name} with code ${code ?? 'none'}`;
        ownEnds[key] = (ownEnds[key] ?? 0) + 1;
      }
    }
    return { ownEnds, seconds: secondsSoFar() };
  }
}

const nothing = { trained: 0, largestStaleness: 0, lost: 0, steps: 0 };

/** Ends the run in order, three steps later, and proves it. */
async function finish(
  world: World,
  stillMs: number,
  report: (line: string) => void,
): Promise<Audit & { steps: number }> {
  const { witness, observer, kept } = world;
  const violations: string[] = [];
  for (const name of ['learner-1', 'learner-0']) {
    const code = await kept.get(name)!.letGo();
    if (code !== undefined && code !== 0)
      violations.push(`${name} ended with code ${code ?? 'none'} after SIGTERM`);
  }
  const reached = (await observer.ledger.read())!.step;
  const last = world.learner('learner-last', reached + 3);
  const deadline = performance.now() + stillMs;
  await until(() => last.hasEnded || performance.now() > deadline);
  if (!last.hasEnded || (await last.exitCode()) !== 0) {
    report(last.errors + last.tail);
    const end = last.hasEnded ? `ended with code ${await last.exitCode()}` : 'came to no end';
    return { ...nothing, violations: [...violations, `the last learner ${end}`] };
  }

  const ledger = (await observer.ledger.read())!;
  const dead = new Map<number, number>();
  for await (const letter of observer.deadLetters.past(AbortSignal.timeout(60_000))) {
    const order = orderOf(ticketOf(letter)?.ticketId ?? '');
    if (order !== undefined) dead.set(order, (dead.get(order) ?? 0) + 1);
  }
  const { groupsPerBatch, maxStepsOffPolicy } = settings;
  const { issued, scored, operations } = witness;
  const evidence = { issued, scored, dead, operations, ledger, versions: world.versions };
  const result = audit({ ...evidence, groupsPerBatch, maxStepsOffPolicy });
  violations.push(...result.violations);

  const lineages = new Lineages(operations);
  const history = lineages.history(lineages.saved(ledger.statePath)) as Recorded[];
  const { lora } = (await observer.config.get())!;
  const whole = await rebuild(history, lora, join(world.folder, 'rebuilt'));
  const survived = await saved(world.checkpointFolder, ledger.statePath);
  if (!whole.every((bytes, i) => bytes.equals(survived[i]!))) {
    violations.push('the parameters differ from those of an uninterrupted run of the same batches');
  }
  return { ...result, violations, steps: ledger.step };
}

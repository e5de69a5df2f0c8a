import { existsSync } from 'node:fs';
import { readdir, readFile, rm, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { World } from './world.js';

/** Longer than any of these mishaps needs; after that it counts as not having happened, and training continues. */
const patienceMs = 20_000;

/**
 * Holds back all messages of the leading learner to NATS from the moment the backend has trained a step for it, until
 * another one leads and has trained further; then lets them through. The event of that step is among them and must
 * no longer count: the other learner has trained the step again.
 */
export async function partition(world: World): Promise<void> {
  const { witness } = world;
  const leader = await world.leader();
  if (leader === undefined) return;
  const network = world.networkOf(leader.name);
  let isHeld = false;
  witness.onLearner = ({ kind }) => {
    if (kind !== 'trained') return;
    isHeld = true;
    network.hold();
  };
  try {
    if (!(await within(patienceMs, () => Promise.resolve(isHeld)))) return;
    const isReplaced = await within(patienceMs, async () => {
      const now = await world.leader();
      return now !== undefined && now !== leader;
    });
    if (!isReplaced) return;
    const goal = witness.steps + 6;
    await within(patienceMs, () => Promise.resolve(witness.steps >= goal));
  } finally {
    witness.onLearner = () => undefined;
    network.release();
  }
}

/**
 * Drops the leading learner's messages to the run's history, like a failing stream among working
 * ones, and kills the learner if it writes a checkpoint nevertheless. A learner that writes the history
 * first, and waits until it is stored, never does; then the messages are let through.
 */
export async function killAheadOfEvent(world: World): Promise<void> {
  const { witness, observer } = world;
  const leader = await world.leader();
  if (leader === undefined) return;
  const before = (await observer.ledger.read())?.step ?? 0;
  const events = observer.names.subjects.event('step');
  let isStruck = false;
  witness.onLearner = (heard) => {
    // A checkpoint of earlier steps may still be on its way.
    if (heard.kind !== 'checkpoint' || heard.step < before + 2 || isStruck) return;
    isStruck = true;
    leader.hit('SIGKILL');
  };
  world.withholds = (from, { subject }) => from === leader.name && subject === events;
  await within(patienceMs, () => Promise.resolve(isStruck));
  world.withholds = () => false;
  witness.onLearner = () => undefined;
}

/** The lost part of the ledger's file. */
export const tears = ['newest checkpoint', 'all of it'] as const;
export type Tear = (typeof tears)[number];

/**
 * Ends all processes, damages NATS' ledger file as a power failure may do, and restarts
 * them.
 */
export async function tear(world: World, lost: Tear): Promise<void> {
  const ups = await Promise.all([...world.kept.values()].map((kept) => kept.down('SIGKILL')));
  await world.server.stop('SIGKILL');
  await tearLedger(world.server.storeFolder, world.run, lost);
  world.damaged();
  await world.server.resume();
  for (const up of ups) up();
}

/**
 * Truncates the file in the middle of the newest checkpoint, which is lost together with everything written after
 * it, or at its beginning. Its index is deleted too, so nats-server uses what the file still has.
 *
 * @throws {Error} if there is no checkpoint below `storeFolder`.
 */
export async function tearLedger(storeFolder: string, run: string, lost: Tear): Promise<void> {
  const accounts = join(storeFolder, 'jetstream');
  for (const account of await readdir(accounts)) {
    const folder = join(accounts, account, 'streams', `KV_ledger_${run}`, 'msgs');
    if (!existsSync(folder)) continue;
    const names = await readdir(folder);
    for (const name of names.filter((each) => !each.endsWith('.blk'))) await rm(join(folder, name));
    const blocks = names.filter((name) => name.endsWith('.blk'));
    for (const name of blocks.sort((a, b) => parseInt(b) - parseInt(a))) {
      const path = join(folder, name);
      const at = (await readFile(path)).lastIndexOf(`$KV.ledger_${run}.checkpoint`);
      await truncate(path, at === -1 || lost === 'all of it' ? 0 : at + 40);
      if (at !== -1 && lost === 'newest checkpoint') return;
    }
    return;
  }
  throw new Error(`no ledger of run ${run} lies under ${storeFolder}`);
}

/** Whether it happened in that time. */
async function within(limitMs: number, holds: () => Promise<boolean>): Promise<boolean> {
  const deadline = performance.now() + limitMs;
  while (performance.now() < deadline) {
    if (await holds()) return true;
    await sleep(20);
  }
  return false;
}

import { existsSync } from 'node:fs';
import { readdir, readFile, rm, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { World } from './world.js';

/** Longer than any of these needs; then it has not come about, and training goes on. */
const patienceMs = 20_000;

/**
 * Holds up all that the leading learner sends to NATS from when the backend has just trained a step for it, until
 * another one leads and has trained on; then lets it through. The event of that step is among it, and it must
 * not count any more: the other one has trained the step anew.
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
 * Loses what the leading learner sends to the run's history, as a stream does that is about to fail while the
 * others work, and kills the learner as soon as it writes a checkpoint all the same. One that writes the history
 * first, and waits until it is there, never does; then the messages are let through.
 */
export async function killAheadOfEvent(world: World): Promise<void> {
  const { witness, observer } = world;
  const leader = await world.leader();
  if (leader === undefined) return;
  const before = (await observer.ledger.read())?.step ?? 0;
  const events = observer.names.subjects.event('step');
  let isStruck = false;
  witness.onLearner = (heard) => {
    // A checkpoint of steps from before may be on its way still.
    if (heard.kind !== 'checkpoint' || heard.step < before + 2 || isStruck) return;
    isStruck = true;
    leader.hit('SIGKILL');
  };
  world.withholds = (from, { subject }) => from === leader.name && subject === events;
  await within(patienceMs, () => Promise.resolve(isStruck));
  world.withholds = () => false;
  witness.onLearner = () => undefined;
}

/** What is lost of the ledger's file. */
export const tears = ['newest checkpoint', 'all of it'] as const;
export type Tear = (typeof tears)[number];

/**
 * Ends everything, damages the file in which NATS keeps the ledger as a power failure may do, and starts
 * everything again.
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
 * Cuts the file off in the midst of the newest checkpoint, so that this one is lost and what was written after
 * it, or at its beginning. Its index goes, too: nats-server takes what it finds.
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

/** Whether it came about in that time. */
async function within(limitMs: number, holds: () => Promise<boolean>): Promise<boolean> {
  const deadline = performance.now() + limitMs;
  while (performance.now() < deadline) {
    if (await holds()) return true;
    await sleep(20);
  }
  return false;
}

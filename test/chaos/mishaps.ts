import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { z } from 'zod';
import type { Random } from '../../shared/base/random.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { gate } from '../support/waiting.js';
import type { Kept } from './kept.js';
import { tellLie, type Lie, lies } from './liars.js';
import { killAheadOfEvent, partition, tear, type Tear, tears } from './staged.js';
import { engineActor, networks, type Network, type World } from './world.js';

/** The learner is the leading one, the standby the other. */
const victims = ['actor', 'reward', 'learner', 'standby', 'backend', 'nats-server'] as const;
type Victim = (typeof victims)[number];
const ways = ['SIGKILL', 'SIGTERM', 'SIGSTOP'] as const;
type Way = (typeof ways)[number];

/** Killed and away for a while; restarted at once; draws nothing while it answers; draws slowly. */
const engineFaults = ['killed', 'restarted', 'hung', 'slow'] as const;
type EngineFault = (typeof engineFaults)[number];

/** Something that goes wrong. */
export type Mishap =
  | { readonly kind: 'kill'; readonly victim: Victim; readonly how: Way }
  | { readonly kind: 'cut' | 'down' | 'delay'; readonly network: Network }
  | { readonly kind: 'repeat' } // messages repeated in another order
  | { readonly kind: 'clock'; readonly victim: Exclude<Victim, 'standby' | 'nats-server'> }
  | { readonly kind: 'partition' } // the leader's messages are held back until another learner leads
  | { readonly kind: 'ahead' } // the leader dies when its ledger is ahead of its events
  | { readonly kind: 'engine'; readonly how: EngineFault } // of the actor that has one
  | { readonly kind: 'lie'; readonly lie: Lie }
  | { readonly kind: 'torn'; readonly lost: Tear }; // of the ledger's file, while all processes are down

/** The follow-up of a mishap. */
export interface Aftermath {
  /** Training has survived the mishap after this many further steps. */
  readonly steps: number;
  /** Ends what still runs, and reports faults that no audit sees. */
  readonly end?: () => Promise<readonly string[]>;
}

/** Failing processes and networks, wrong messages and clocks, in random order. */
export function processPlan(random: Random): Mishap[] {
  const others = random.shuffle<Mishap>([
    ...victims.flatMap((victim) => ways.map((how) => ({ kind: 'kill', victim, how }) as const)),
    ...networks.flatMap((network) =>
      (['cut', 'down', 'delay'] as const).map((kind) => ({ kind, network })),
    ),
    ...(['repeat', 'repeat', 'partition', 'ahead'] as const).map((kind) => ({ kind })),
    ...(['actor', 'reward', 'learner', 'backend'] as const).map(
      (victim) => ({ kind: 'clock', victim }) as const,
    ),
  ]);
  const ofEngine = engineFaults.map((how) => ({ kind: 'engine', how }) as const);
  return [...others, ...random.shuffle<Mishap>(ofEngine)];
}

/** Lying actors, and finally torn files, which may stop a run. */
export function attackPlan(random: Random): Mishap[] {
  return [
    ...random.shuffle<Mishap>(lies.map((lie) => ({ kind: 'lie', lie }))),
    ...tears.map((lost) => ({ kind: 'torn', lost }) as const),
  ];
}

export function nameOf(mishap: Mishap): string {
  switch (mishap.kind) {
    case 'kill':
      return `${mishap.how} ${mishap.victim}`;
    case 'repeat':
      return 'messages repeated and reordered';
    case 'clock':
      return `clock of ${mishap.victim} jumps`;
    case 'partition':
      return 'learner cut off and replaced, then heard again';
    case 'ahead':
      return 'learner killed with its ledger ahead of its events';
    case 'engine':
      return `engine ${mishap.how}`;
    case 'lie':
      return `lying actor: ${mishap.lie}`;
    case 'torn':
      return `ledger's file torn: ${mishap.lost}`;
    default:
      return `network of ${mishap.network}: ${mishap.kind}`;
  }
}

/** Longer than the leases of this suite: 4 s, and 2 s for the lead. */
const heldMs = 5_000;

/** Makes the mishap happen; resolves when it is over, not when the world has recovered. */
export async function strike(world: World, mishap: Mishap, random: Random): Promise<Aftermath> {
  switch (mishap.kind) {
    case 'repeat':
      await repeat(world, random);
      return { steps: 1 };
    case 'clock': {
      const { process } = await victimOf(world, mishap.victim, random);
      // A starting process has not installed its signal handler yet.
      if (process.log.length > 0) process.hold('SIGUSR2');
      return { steps: 1 };
    }
    case 'kill':
      await kill(world, mishap.victim, mishap.how, random);
      return { steps: 1 };
    case 'partition':
      await partition(world);
      return { steps: 1 };
    case 'ahead':
      await killAheadOfEvent(world);
      return { steps: 1 };
    case 'engine':
      return await harmEngine(world, mishap.how);
    case 'lie':
      return tellLie(world, mishap.lie);
    case 'torn':
      await tear(world, mishap.lost);
      return { steps: 4 };
    default:
      await disturb(world, mishap.network, mishap.kind, random);
      return { steps: 1 };
  }
}

/** Longer than a server that draws nothing stays in use. */
const hungMs = 20_000;
const usedAgainMs = 60_000;

async function harmEngine({ engine, witness }: World, how: EngineFault): Promise<Aftermath> {
  if (how === 'hung') {
    const { opened, open } = gate();
    engine.holds = { sampling: opened };
    await sleep(hungMs);
    engine.holds = {};
    open();
  } else if (how === 'slow') {
    engine.delayMs = 3_000;
    await sleep(heldMs);
    engine.delayMs = 0;
  } else {
    await engine.stop();
    if (how === 'killed') await sleep(heldMs);
    await engine.start(); // it counts from 0 again, and has no adapter
  }
  // What the engine held meanwhile says nothing: only a ticket that was issued later does.
  const [tickets, groups] = [witness.tickets.length, witness.delivered.length];
  const isUsedAgain = () => {
    const later = new Set(witness.tickets.slice(tickets).map(({ ticketId }) => ticketId));
    return witness.delivered
      .slice(groups)
      .some(({ group }) => group.actor === engineActor && later.has(group.ticket.ticketId));
  };
  const end = async () => {
    const isUsed = async () => {
      while (!isUsedAgain()) await sleep(100);
      return [];
    };
    return await Promise.race([
      isUsed(),
      sleep(usedAgainMs, [`the engine that was ${how} is not used again`]),
    ]);
  };
  return { steps: 1, end };
}

async function disturb(
  world: World,
  name: Network,
  how: 'cut' | 'down' | 'delay',
  random: Random,
): Promise<void> {
  const proxies = world.network(name);
  if (how === 'cut') {
    for (const proxy of proxies) proxy.cut();
    return;
  }
  for (const proxy of proxies) {
    if (how === 'down') proxy.down();
    else proxy.delayMs = 400;
  }
  await sleep(1_000 + random.int(2_000));
  for (const proxy of proxies) {
    proxy.up();
    proxy.delayMs = 0;
  }
}

async function kill(world: World, victim: Victim, how: Way, random: Random): Promise<void> {
  if (victim === 'nats-server') {
    if (how !== 'SIGSTOP') return world.server.restart(how);
    world.server.hold('SIGSTOP');
    await sleep(heldMs);
    world.server.hold('SIGCONT');
    return;
  }
  const kept = await victimOf(world, victim, random);
  if (how !== 'SIGSTOP') {
    kept.hit(how);
    return;
  }
  const { process } = kept;
  process.hold('SIGSTOP');
  await sleep(heldMs);
  process.hold('SIGCONT');
}

async function victimOf(world: World, victim: Victim, random: Random): Promise<Kept> {
  const leader = victim === 'learner' || victim === 'standby' ? await world.leader() : undefined;
  if (victim === 'learner' && leader !== undefined) return leader;
  // While no learner leads, either may count as learner or standby.
  const role = victim === 'standby' ? 'learner' : victim;
  const candidates = [...world.kept.values()].filter(
    (kept) => kept.name.startsWith(role) && kept !== leader,
  );
  return candidates[random.int(candidates.length)]!;
}

/** Publishes copies of newer messages under other ids, so that no stream recognizes them as duplicates. */
async function repeat({ observer, witness }: World, random: Random): Promise<void> {
  const { subjects } = observer.names;
  const copy = async <S extends z.ZodType>(subject: string, schema: S, message: z.output<S>) => {
    const signal = AbortSignal.timeout(1_000); // the queue may be full, or the server away
    const msgId = `again-${randomUUID()}`;
    await observer.publish(subject, schema, message, { msgId, signal }).catch(() => undefined);
  };
  const { tickets, delivered, scored } = witness;
  const trained = scored.filter(({ group }) => group.ticket.split === 'train');
  const copies = [
    ...tickets.slice(-4).map((it) => () => copy(subjects.tickets('train'), Ticket, it)),
    ...delivered.slice(-32).map(
      ({ group }) =>
        () =>
          copy(subjects.rollouts('again'), RolloutGroup, group),
    ),
    ...trained.slice(-32).map((it) => () => copy(subjects.scored('train'), ScoredGroup, it)),
  ];
  for (const send of random.shuffle(copies).slice(0, 12)) await send();
}

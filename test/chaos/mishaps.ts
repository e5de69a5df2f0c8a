import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { z } from 'zod';
import type { Random } from '../../shared/random.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import type { Kept } from './kept.js';
import { networks, type Network, type World } from './world.js';

/** The learner is the one that leads, the standby the other one. */
const victims = ['actor', 'reward', 'learner', 'standby', 'backend', 'nats-server'] as const;
type Victim = (typeof victims)[number];
const ways = ['SIGKILL', 'SIGTERM', 'SIGSTOP'] as const;

/** Something that goes wrong. */
export type Mishap =
  | { readonly kind: 'kill'; readonly victim: Victim; readonly how: Way }
  | { readonly kind: 'cut' | 'down' | 'delay'; readonly network: Network }
  | { readonly kind: 'repeat' } // messages once more, in another order
  | { readonly kind: 'clock'; readonly victim: Exclude<Victim, 'standby' | 'nats-server'> };
type Way = (typeof ways)[number];

/** Every mishap there is, in an order that the random source decides. */
export function plan(random: Random): Mishap[] {
  return random.shuffle<Mishap>([
    ...victims.flatMap((victim) => ways.map((how) => ({ kind: 'kill', victim, how }) as const)),
    ...networks.flatMap((network) =>
      (['cut', 'down', 'delay'] as const).map((kind) => ({ kind, network })),
    ),
    { kind: 'repeat' },
    { kind: 'repeat' },
    ...(['actor', 'reward', 'learner', 'backend'] as const).map(
      (victim) => ({ kind: 'clock', victim }) as const,
    ),
  ]);
}

export function nameOf(mishap: Mishap): string {
  if (mishap.kind === 'kill') return `${mishap.how} ${mishap.victim}`;
  if (mishap.kind === 'repeat') return 'messages repeated and reordered';
  if (mishap.kind === 'clock') return `clock of ${mishap.victim} jumps`;
  return `network of ${mishap.network}: ${mishap.kind}`;
}

/** Longer than the leases of this suite, which are 4 s, and 2 s of the right to train. */
const heldMs = 5_000;

/** Lets it happen; resolves when it is over, not when the world has recovered. */
export async function strike(world: World, mishap: Mishap, random: Random): Promise<void> {
  if (mishap.kind === 'repeat') return repeat(world, random);
  if (mishap.kind === 'clock') {
    const { process } = await victimOf(world, mishap.victim, random);
    // A process that is only starting has not loaded what listens for the signal.
    if (process.log.length > 0) process.hold('SIGUSR2');
    return;
  }
  if (mishap.kind === 'kill') return kill(world, mishap.victim, mishap.how, random);
  const network = world.networks[mishap.network];
  if (mishap.kind === 'cut') {
    network.cut();
    return;
  }
  if (mishap.kind === 'down') network.down();
  else network.delayMs = 400;
  await sleep(1_000 + random.int(2_000));
  network.up();
  network.delayMs = 0;
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
  // While nobody leads, learner and standby are either of the two.
  const role = victim === 'standby' ? 'learner' : victim;
  const candidates = [...world.kept.values()].filter(
    (kept) => kept.name.startsWith(role) && kept !== leader,
  );
  return candidates[random.int(candidates.length)]!;
}

/** Publishes copies of newer messages under other ids, so that no stream knows them again. */
async function repeat({ observer, witness }: World, random: Random): Promise<void> {
  const { subjects } = observer.names;
  const copy = async <S extends z.ZodType>(subject: string, schema: S, message: z.output<S>) => {
    const signal = AbortSignal.timeout(1_000); // the queue may be full, or the server away
    const msgId = `again-${randomUUID()}`;
    await observer.publish(subject, schema, message, { msgId, signal }).catch(() => undefined);
  };
  const copies = [
    ...witness.tickets.slice(-4).map((it) => () => copy(subjects.tickets('train'), Ticket, it)),
    ...witness.groups.map((it) => () => copy(subjects.rollouts('again'), RolloutGroup, it)),
    ...witness.judged.map((it) => () => copy(subjects.scored('train'), ScoredGroup, it)),
  ];
  for (const send of random.shuffle(copies).slice(0, 12)) await send();
}

import type { ActorLease } from '../../../shared/wire/actor-lease.js';
import type { Look } from './look.js';

/** An actor as it told of itself a moment ago. */
export interface ActorNow {
  readonly name: string;
  readonly version: number;
  readonly behind: number; // versions between its own and the newest
  readonly inFlight: number; // groups
  readonly limit: number; // groups
  readonly groupsPerSecond: number | undefined; // unknown until it has told twice
  /** Shares of the time in which it sampled nothing, by what it waited for. */
  readonly idle: Readonly<Record<IdleCause, number>> | undefined;
  readonly silentSeconds: number; // since it was heard of
  readonly isQuarantined: boolean;
}

export type IdleCause = keyof ActorLease['idleSeconds'];

/** An actor renews its lease every 2 s; one that misses this many has ended or hangs. */
export const silentAfterSeconds = 10;

/** Longer than this nobody asks for an actor that has gone. */
const forgottenAfterSeconds = 120;

/** @param looks rising in time; speeds are between an actor's first lease in them and its last. */
export function actorsNow(looks: readonly Look[]): ActorNow[] {
  const { at, leases, manifest } = looks.at(-1)!;
  return leases
    .map((lease) => {
      const first = looks
        .flatMap((look) => look.leases)
        .find((other) => other.actor === lease.actor && isSameLife(other, lease));
      return {
        name: lease.actor,
        version: lease.version,
        behind: Math.max(0, (manifest?.version ?? lease.version) - lease.version),
        inFlight: lease.inFlight,
        limit: lease.limit,
        ...speed(first ?? lease, lease),
        silentSeconds: Math.max(0, (at - lease.lastSeenAt) / 1_000),
        isQuarantined: manifest?.quarantined?.includes(lease.actor) ?? false,
      };
    })
    .filter(({ silentSeconds }) => silentSeconds < forgottenAfterSeconds)
    .sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
}

/** Its counters only rise, unless it was started anew. */
function isSameLife(earlier: ActorLease, later: ActorLease): boolean {
  return earlier.groups <= later.groups && earlier.idleSeconds.ticket <= later.idleSeconds.ticket;
}

function speed(first: ActorLease, last: ActorLease): Pick<ActorNow, 'groupsPerSecond' | 'idle'> {
  const seconds = (last.lastSeenAt - first.lastSeenAt) / 1_000;
  if (seconds <= 0) return { groupsPerSecond: undefined, idle: undefined };
  const share = (cause: IdleCause) =>
    Math.min(1, Math.max(0, last.idleSeconds[cause] - first.idleSeconds[cause]) / seconds);
  return {
    groupsPerSecond: (last.groups - first.groups) / seconds,
    idle: { ticket: share('ticket'), policy: share('policy'), publish: share('publish') },
  };
}

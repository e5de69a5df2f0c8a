import { UserError } from '../base/errors.js';
import { RunName } from '../wire/run-name.js';
import type { Split } from '../wire/ticket.js';

/** Key of the run's configuration in the bucket `config`. */
export const runConfigKey = 'run';

/** A queue of a run that a service consumes. */
export type Source = 'tickets.train' | 'tickets.eval' | 'rollouts' | 'scored.train' | 'scored.eval';

/** The names that a run uses in NATS. All include the run's name, so that several runs can share one server. */
export interface RunNames {
  readonly run: string;
  readonly streams: Readonly<
    Record<'tickets' | 'rollouts' | 'uploads' | 'scored' | 'dead' | 'events', string>
  >;
  readonly buckets: Readonly<Record<'config' | 'policy' | 'ledger' | 'actors', string>>;
  /** `weights` holds adapters; `bodies` holds bodies of trusted services that are too large for a message. */
  readonly objects: Readonly<Record<'weights' | 'bodies', string>>;
  readonly subjects: {
    tickets(split: Split): string;
    rollouts(actor: string): string;
    uploads(actor: string): string;
    scored(split: Split): string;
    /** @param origin token of the actor whose message it was, else of its split. */
    dead(stage: string, origin: string): string;
    event(kind: string): string;
    /** Announces that the manifest has just changed; not stored in a stream. */
    readonly policyChanged: string;
  };
  /** Subject to which the sender of a group uploads a body that is too large for a message. */
  uploadsOf(rollouts: string): string;
  /** The durable consumer of a source: its stream, its name and its filter. */
  consumer(source: Source): {
    readonly stream: string;
    readonly durable: string;
    readonly filter: string;
  };
}

/** Derives the names of a run. @throws {UserError} if the run's name cannot be part of subjects and buckets. */
export function runNames(run: string): RunNames {
  if (!RunName.safeParse(run).success) {
    throw new UserError(
      `the run is called ${JSON.stringify(run)}; use 1 to 48 letters, digits, - or _, beginning with a letter or digit`,
    );
  }
  const subject = (...tokens: string[]) => ['offbeat', run, ...tokens].join('.');
  const streams = {
    tickets: `TICKETS_${run}`,
    rollouts: `ROLLOUTS_${run}`,
    uploads: `UPLOADS_${run}`,
    scored: `SCORED_${run}`,
    dead: `DEAD_${run}`,
    events: `EVENTS_${run}`,
  };
  const consumers = {
    'tickets.train': {
      stream: streams.tickets,
      durable: 'actors-train',
      filter: subject('tickets', 'train'),
    },
    'tickets.eval': {
      stream: streams.tickets,
      durable: 'actors-eval',
      filter: subject('tickets', 'eval'),
    },
    rollouts: { stream: streams.rollouts, durable: 'reward', filter: subject('rollouts', '*') },
    'scored.train': {
      stream: streams.scored,
      durable: 'learner-train',
      filter: subject('scored', 'train'),
    },
    'scored.eval': {
      stream: streams.scored,
      durable: 'learner-eval',
      filter: subject('scored', 'eval'),
    },
  } as const satisfies Record<Source, unknown>;

  return {
    run,
    streams,
    buckets: {
      config: `config_${run}`,
      policy: `policy_${run}`,
      ledger: `ledger_${run}`,
      actors: `actors_${run}`,
    },
    objects: { weights: `weights_${run}`, bodies: `bodies_${run}` },
    subjects: {
      tickets: (split) => subject('tickets', split),
      rollouts: (actor) => subject('rollouts', nameToken(actor)),
      uploads: (actor) => subject('uploads', nameToken(actor)),
      scored: (split) => subject('scored', split),
      dead: (stage, origin) => subject('dead', nameToken(stage), origin),
      event: (kind) => subject('events', nameToken(kind)),
      policyChanged: subject('policy'),
    },
    uploadsOf: (rollouts) => subject('uploads', rollouts.split('.').at(-1)!),
    consumer: (source) => consumers[source],
  };
}

/** Subject of every dead letter, including older ones whose subject does not name an origin. */
export function everyDeadLetter(names: RunNames): string {
  return names.subjects.dead('x', 'x').replace(/x\.x$/, '>');
}

/** Returns the sender of a dead-lettered message as a token: the actor of a group, else the split. */
export function originOf(subject: string): string {
  const token = subject.split('.').at(-1) ?? '';
  return /^[A-Za-z0-9_=-]+$/.test(token) ? token : 'unknown';
}

/** The queues that each stage consumes, so the only ones whose messages it may dead-letter. */
const sourcesOf: ReadonlyMap<string, readonly Source[]> = new Map([
  ['actor', ['tickets.train', 'tickets.eval']],
  ['reward', ['rollouts']],
  ['learner', ['scored.train', 'scored.eval']],
]);

/** Whether this stage consumes messages of this subject: `rollouts.actor-0` for `reward`. */
export function takesFrom(names: RunNames, stage: string, subject: string): boolean {
  return (sourcesOf.get(stage) ?? []).some((source) => isPublishedTo(names, source, subject));
}

/** Whether messages of this queue have this subject: `rollouts.actor-0` for `rollouts`. */
export function isPublishedTo(names: RunNames, source: Source, subject: string): boolean {
  const { filter } = names.consumer(source);
  if (!filter.endsWith('*')) return subject === filter;
  const prefix = filter.slice(0, -1);
  return subject.startsWith(prefix) && /^[A-Za-z0-9_=-]+$/.test(subject.slice(prefix.length));
}

/**
 * Encodes a name as one token of a subject or key, injectively: each byte other than a letter, a digit, - or
 * _ becomes `=` and its hexadecimal value, so `pod.7` is `pod=2E7`.
 */
export function nameToken(name: string): string {
  const bytes = new TextEncoder().encode(name);
  return [...bytes]
    .map((byte) => {
      const char = String.fromCharCode(byte);
      return /[A-Za-z0-9_-]/.test(char)
        ? char
        : `=${byte.toString(16).toUpperCase().padStart(2, '0')}`;
    })
    .join('');
}

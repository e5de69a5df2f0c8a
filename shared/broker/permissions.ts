import { everyDeadLetter, nameToken, type RunNames, type Source } from './names.js';

/** Who a process is to NATS. Actors are told apart, so that none can speak for another. */
export type Identity =
  | { readonly role: 'learner' | 'reward' | 'observer' | 'operator' }
  | { readonly role: 'actor'; readonly actor: string };

/** The subjects that an identity may publish to and listen on; everything else is refused. */
export interface Permissions {
  readonly publish: readonly string[];
  readonly subscribe: readonly string[];
}

/**
 * What each role of a run needs of NATS, and no more:
 *
 * - an **actor** takes tickets, reads configuration, manifests and weights, and writes its own rollouts and
 *   its own lease. It cannot read the ledger, nor the rollouts of others, its own large ones included. Whatever it
 *   writes has a subject of its own, so that the server can bound what each actor may have.
 * - the **reward** service takes rollouts and writes scores.
 * - the **learner** lays out the run, writes tickets, manifests, weights, ledger and events, takes scores.
 * - an **observer** reads everything and changes nothing.
 * - an **operator** may do anything with this run, and nothing with another one: it is for people.
 *
 * Nobody but the learner and the operator may make consumers, since a consumer can have the server
 * deliver what a stream holds to any subject. Each has an inbox of its own, so that nobody can listen
 * to the answers that others are given.
 */
export function permissionsOf(identity: Identity, names: RunNames): Permissions {
  const { publish, subscribe = [] } = needsOf(identity, names);
  return {
    publish: ['$JS.API.INFO', ...publish],
    subscribe: [`${inboxPrefix(identity)}.>`, ...subscribe],
  };
}

/** Where the server's answers to this identity go. */
export function inboxPrefix(identity: Identity): string {
  return `_INBOX.${identityName(identity)}`;
}

/** `learner`, or `actor.actor-0`: one or two tokens of a subject, and part of a file name. */
export function identityName(identity: Identity): string {
  return identity.role === 'actor' ? `actor.${nameToken(identity.actor)}` : identity.role;
}

interface Needs {
  readonly publish: readonly string[];
  readonly subscribe?: readonly string[];
}

function needsOf(identity: Identity, names: RunNames): Needs {
  const { streams, subjects } = names;
  const { config, policy, ledger, actors } = mapped(names.buckets, (bucket) => `KV_${bucket}`);
  const { weights, bodies } = mapped(names.objects, (bucket) => `OBJ_${bucket}`);
  const all = [...Object.values(streams), config, policy, ledger, actors, weights, bodies];
  const storeBodies = storing(names.objects.bodies);

  switch (identity.role) {
    case 'actor':
      return {
        publish: [
          subjects.rollouts(identity.actor),
          subjects.uploads(identity.actor),
          subjects.dead('actor', nameToken(identity.actor)),
          key(names.buckets.actors, nameToken(identity.actor)),
          ...api('STREAM.INFO', [config, policy, actors]),
          ...api('STREAM.MSG.GET', [config, policy, weights]),
          ...taking(names, 'tickets.train'),
          ...taking(names, 'tickets.eval'),
        ],
        subscribe: [subjects.policyChanged],
      };
    case 'reward':
      return {
        publish: [
          subjects.scored('train'),
          subjects.scored('eval'),
          subjects.dead('reward', '*'),
          ...storeBodies,
          ...api('STREAM.INFO', [config]),
          ...api('STREAM.MSG.GET', [config, bodies, streams.uploads]),
          ...api('STREAM.MSG.DELETE', [streams.uploads]),
          ...api('STREAM.PURGE', [bodies]),
          ...taking(names, 'rollouts'),
        ],
      };
    case 'learner':
      return {
        publish: [
          subjects.tickets('train'),
          subjects.tickets('eval'),
          subjects.dead('learner', '*'),
          everyKind(subjects.event('x')),
          subjects.policyChanged,
          ...[names.buckets.config, names.buckets.policy, names.buckets.ledger].map((bucket) =>
            key(bucket, '*'),
          ),
          ...storeBodies,
          ...storing(names.objects.weights),
          ...api('STREAM.INFO', all),
          ...api('STREAM.CREATE', all),
          ...api('STREAM.UPDATE', all),
          ...api('STREAM.MSG.GET', [config, policy, ledger, actors, weights, bodies]),
          ...api('STREAM.MSG.GET', [streams.dead, streams.events, streams.uploads]),
          ...api('STREAM.MSG.GET', [streams.tickets, streams.rollouts]),
          ...api('STREAM.MSG.DELETE', [streams.tickets]),
          ...api('STREAM.PURGE', [
            streams.tickets,
            streams.rollouts,
            streams.uploads,
            streams.scored,
            config,
            policy,
            actors,
            ledger,
            weights,
            bodies,
          ]),
          ...sources.flatMap((source) => layingOut(names, source)),
          ...taking(names, 'scored.train'),
          ...taking(names, 'scored.eval'),
        ],
        subscribe: [everyDeadLetter(names), everyKind(subjects.event('x'))],
      };
    case 'observer':
      return {
        publish: [
          ...api('STREAM.INFO', all),
          ...api('STREAM.MSG.GET', all),
          ...sources.map((source) => consumerApi(names, 'CONSUMER.INFO', source)),
        ],
        subscribe: [everyDeadLetter(names), everyKind(subjects.event('x')), subjects.policyChanged],
      };
    case 'operator': {
      const everything = subjects.policyChanged.replace(/policy$/, '>');
      return {
        publish: [
          everything,
          ...Object.values(names.buckets).map((bucket) => key(bucket, '>')),
          ...Object.values(names.objects).map((bucket) => `$O.${bucket}.>`),
          ...api('STREAM.*', all),
          ...api('STREAM.MSG.*', all),
          ...all.flatMap((stream) => [
            `$JS.API.CONSUMER.*.${stream}.>`,
            `$JS.API.CONSUMER.MSG.NEXT.${stream}.>`,
            `$JS.ACK.${stream}.>`,
          ]),
        ],
        subscribe: [everything],
      };
    }
  }
}

const sources: readonly Source[] = [
  'tickets.train',
  'tickets.eval',
  'rollouts',
  'scored.train',
  'scored.eval',
];

function mapped<Key extends string>(
  record: Readonly<Record<Key, string>>,
  change: (value: string) => string,
): Record<Key, string> {
  const entries = Object.entries<string>(record).map(([name, value]) => [name, change(value)]);
  return Object.fromEntries(entries) as Record<Key, string>;
}

function api(call: string, streams: readonly string[]): string[] {
  return streams.map((stream) => `$JS.API.${call}.${stream}`);
}

function consumerApi(names: RunNames, call: string, source: Source): string {
  const { stream, durable } = names.consumer(source);
  return `$JS.API.${call}.${stream}.${durable}`;
}

/** To take messages from a queue and to settle them. */
function taking(names: RunNames, source: Source): string[] {
  const { stream, durable } = names.consumer(source);
  return [
    consumerApi(names, 'CONSUMER.INFO', source),
    consumerApi(names, 'CONSUMER.MSG.NEXT', source),
    `$JS.ACK.${stream}.${durable}.>`,
  ];
}

/** To make a queue's consumer, change it, and make it anew. */
function layingOut(names: RunNames, source: Source): string[] {
  return [
    consumerApi(names, 'CONSUMER.INFO', source),
    consumerApi(names, 'CONSUMER.DELETE', source),
    `${consumerApi(names, 'CONSUMER.CREATE', source)}.${names.consumer(source).filter}`,
  ];
}

function storing(bucket: string): string[] {
  return [`$O.${bucket}.C.*`, `$O.${bucket}.M.*`];
}

function key(bucket: string, name: string): string {
  return `$KV.${bucket}.${name}`;
}

/** Of a subject that ends with its kind, here `x`. */
function everyKind(subject: string): string {
  return subject.replace(/x$/, '*');
}

/**
 * The account of NATS that an identity belongs to. What the server publishes by itself, such as the
 * answer to whoever stored a message, goes to the subject that the asker named, and no permission is
 * checked for that; but it stays in the asker's account. So the streams of a run lie in an account that
 * the trusted share, and everybody else has one of its own, into which it imports what it may use.
 */
export function accountOf(identity: Identity, { run }: RunNames): string {
  const name = identityName(identity).replaceAll('.', ':'); // a dot would split subjects of the server's
  return isTrusted(identity) ? runAccount(run) : `${runAccount(run)}:${name}`;
}

/** The account that the streams of a run belong to; the server keeps them in a folder of this name. */
export function runAccount(run: string): string {
  return `offbeat_${run}`;
}

/** Subjects of the run's account that another one may use. */
export interface Imports {
  /** To publish to: the answers come back, one or, for messages taken from a queue, several. */
  readonly services: readonly string[];
  /** To listen on. */
  readonly streams: readonly string[];
}

/** What an identity with an account of its own uses of the run's: all that it may, but for its own inbox. */
export function importsOf(identity: Identity, names: RunNames): Imports {
  if (isTrusted(identity)) return { services: [], streams: [] };
  const { publish, subscribe } = permissionsOf(identity, names);
  const inbox = `${inboxPrefix(identity)}.`;
  return {
    services: publish,
    streams: subscribe.filter((subject) => !subject.startsWith(inbox)),
  };
}

/** Who lays out and tends a run could spoil it anyway. */
function isTrusted({ role }: Identity): boolean {
  return role === 'learner' || role === 'operator';
}

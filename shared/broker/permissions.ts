import { everyDeadLetter, nameToken, type RunNames, type Source } from './names.js';

/** The identity of a process in NATS. Each actor has its own, so that none can impersonate another. */
export type Identity =
  | { readonly role: 'learner' | 'reward' | 'observer' | 'operator' }
  | { readonly role: 'actor'; readonly actor: string };

/** The subjects that an identity may publish to and subscribe to; the server refuses everything else. */
export interface Permissions {
  readonly publish: readonly string[];
  readonly subscribe: readonly string[];
}

/**
 * Returns the minimum that each role of a run needs in NATS:
 *
 * - an **actor** takes tickets, reads configuration, manifests and weights, and writes its own rollouts and
 *   its own lease. It cannot read the ledger or any rollouts, not even its own large ones. It writes
 *   to its own subjects, so that the server can limit each actor.
 * - the **reward** service takes rollouts and writes scores.
 * - the **learner** lays out the run, writes tickets, manifests, weights, ledger and events, takes scores.
 * - an **observer** reads everything and changes nothing.
 * - an **operator** may do anything with this run and nothing with another one; people use it.
 *
 * Only the learner and the operator may create consumers, since a consumer can have the server deliver a
 * stream's messages to any subject. Each identity has its own inbox, so that no other can read its answers.
 */
export function permissionsOf(identity: Identity, names: RunNames): Permissions {
  const { publish, subscribe = [] } = needsOf(identity, names);
  return {
    publish: ['$JS.API.INFO', ...publish],
    subscribe: [`${inboxPrefix(identity)}.>`, ...subscribe],
  };
}

/** Subject prefix of the server's answers to this identity. */
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
          ...api('DIRECT.GET', [weights]),
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
          ...api('DIRECT.GET', [bodies]),
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
          ...api('DIRECT.GET', [weights, bodies]),
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

/** Subjects needed to fetch messages from a queue and settle them. */
function taking(names: RunNames, source: Source): string[] {
  const { stream, durable } = names.consumer(source);
  return [
    consumerApi(names, 'CONSUMER.INFO', source),
    consumerApi(names, 'CONSUMER.MSG.NEXT', source),
    `$JS.ACK.${stream}.${durable}.>`,
  ];
}

/** Subjects needed to create, update and recreate a queue's consumer. */
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

/** Replaces the kind at the end of a subject, here `x`, by a wildcard. */
function everyKind(subject: string): string {
  return subject.replace(/x$/, '*');
}

/**
 * Returns the NATS account of an identity. The server publishes its own messages, such as the answer to a
 * publisher, to the reply subject that the client named, without checking permissions; but only within the
 * client's account. So the run's streams belong to an account shared by the trusted roles, and every other
 * identity has its own account, which imports the subjects it may use.
 */
export function accountOf(identity: Identity, { run }: RunNames): string {
  const name = identityName(identity).replaceAll('.', ':'); // a dot would split the server's own subjects
  return isTrusted(identity) ? runAccount(run) : `${runAccount(run)}:${name}`;
}

/** The account that owns the streams of a run; the server stores them in a folder of this name. */
export function runAccount(run: string): string {
  return `offbeat_${run}`;
}

/** Subjects of the run's account that another account may use. */
export interface Imports {
  /** To publish to; each request gets one answer, or several when it fetches messages from a queue. */
  readonly services: readonly string[];
  /** To subscribe to. */
  readonly streams: readonly string[];
}

/** Returns the imports of an identity with its own account: everything it may use except its inbox. */
export function importsOf(identity: Identity, names: RunNames): Imports {
  if (isTrusted(identity)) return { services: [], streams: [] };
  const { publish, subscribe } = permissionsOf(identity, names);
  const inbox = `${inboxPrefix(identity)}.`;
  return {
    services: publish,
    streams: subscribe.filter((subject) => !subject.startsWith(inbox)),
  };
}

/** Roles that manage the run's streams, so isolating them would protect nothing. */
function isTrusted({ role }: Identity): boolean {
  return role === 'learner' || role === 'operator';
}

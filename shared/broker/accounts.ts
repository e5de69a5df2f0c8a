import { inboxPrefix, identityName, type Identity, permissionsOf } from './permissions.js';
import type { RunNames } from './names.js';

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

import { existsSync } from 'node:fs';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { runAccount } from '../../shared/broker/permissions.js';
import type { NatsUser } from './keys.js';

/**
 * The accounts of a run, with their users and permissions, in the syntax of nats-server's configuration.
 * It contains only public keys, so it is not secret.
 */
export function accountsText(run: string, users: readonly NatsUser[]): string {
  const host = runAccount(run);
  const guests = users.filter(({ account }) => account !== host);
  const services = new Set(guests.flatMap(({ imports }) => imports.services));
  const streams = new Set(guests.flatMap(({ imports }) => imports.streams));
  const runs = account(host, [
    'jetstream: enabled',
    list('users', users.filter((user) => user.account === host).map(userText)),
    list('exports', [
      ...[...services].map((subject) => `{ service: ${quoted(subject)}${answers(subject)} }`),
      ...[...streams].map((subject) => `{ stream: ${quoted(subject)} }`),
    ]),
  ]);
  const from = (subject: string) => `{ account: ${quoted(host)}, subject: ${quoted(subject)} }`;
  const others = guests.map((guest) =>
    account(guest.account, [
      list('users', [userText(guest)]),
      list('imports', [
        ...guest.imports.services.map((subject) => `{ service: ${from(subject)} }`),
        ...guest.imports.streams.map((subject) => `{ stream: ${from(subject)} }`),
      ]),
    ]),
  );
  return [runs, ...others].join('');
}

/**
 * Gives a run's account the streams of a run that was begun when the server had no accounts but the global one.
 * Call it before the server starts.
 *
 * @param storeFolder of JetStream.
 */
export async function adoptStreams(storeFolder: string, run: string): Promise<void> {
  const folderOf = (name: string) => join(storeFolder, 'jetstream', name);
  const [old, own] = [folderOf('$G'), folderOf(runAccount(run))];
  if (existsSync(old) && !existsSync(own)) await rename(old, own);
}

/** A pull request is answered by a stream of messages; every other request has one answer. */
function answers(subject: string): string {
  return subject.startsWith('$JS.API.CONSUMER.MSG.NEXT.') ? ', response_type: stream' : '';
}

function userText({ name, publicKey, permissions: { publish, subscribe } }: NatsUser): string {
  const allow = (subjects: readonly string[]) => `{ allow: [${subjects.map(quoted).join(', ')}] }`;
  return `{ # ${name}
        nkey: ${publicKey}
        permissions: {
          publish: ${allow(publish)}
          subscribe: ${allow(subscribe)}
        }
      }`;
}

function account(name: string, parts: readonly string[]): string {
  return `  ${quoted(name)}: {\n${parts.map((part) => `    ${part}\n`).join('')}  }\n`;
}

function list(name: string, items: readonly string[]): string {
  return `${name}: [\n${items.map((item) => `      ${item}\n`).join('')}    ]`;
}

function quoted(text: string): string {
  return JSON.stringify(text);
}

import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { identityName, runAccount } from '../shared/broker/permissions.js';
import { makeOutputFolder } from '../shared/base/make-folder.js';
import { string, int, listOf } from '../shared/service/config-fields.js';
import { loadConfig, type Environment } from '../shared/service/config.js';
import { describeFlags } from '../shared/service/config-help.js';
import { replaceFile } from '../shared/base/durable-file.js';
import { UserError } from '../shared/base/errors.js';
import { RunName } from '../shared/wire/run-name.js';
import { runIdentities } from './processes/members.js';
import {
  authorityFile,
  certificateIn,
  identitiesIn,
  type NatsUser,
  writeKeys,
  hasCertificateFor,
} from './nats-server/keys.js';
import { accountsText } from './nats-server/accounts.js';
import { accountsBlock, tlsText } from './nats-server/start.js';

/** What the keys are for. */
export const NatsConfig = z
  .object({
    run: RunName.describe('the run that the keys are for.'),
    out: string.describe(
      'folder for the keys and nats-server.conf; keys and certificate in it are kept.',
    ),
    actors: int
      .min(1)
      .max(256)
      .default(2)
      .describe(
        'how many actors: they are called actor-0, actor-1, …, as pods of a StatefulSet are.',
      ),
    evalActors: int.min(0).max(256).default(0).describe('and eval-actor-0, …'),
    tlsHosts: listOf(z.string())
      .regex(
        /^[A-Za-z0-9.:-]+(,[A-Za-z0-9.:-]+)*$/,
        'expected names or addresses, separated by commas',
      )
      .optional()
      .describe(
        'host names and addresses of the server, separated by commas; if given, it gets a certificate for them.',
      ),
    tlsFolder: string
      .optional()
      .describe('where the server will find server.pem and server-key.pem; by default in --out.'),
  })
  .check(({ value, issues }) => {
    if (value.tlsFolder === undefined || value.tlsHosts !== undefined) return;
    const message = 'a certificate is made only for --tls-hosts; add it, or remove this';
    issues.push({ code: 'custom', input: value, path: ['tlsFolder'], message });
  });

export const natsConfigService = 'offbeat-nats-config';

export function natsConfigHelp(): string {
  return `offbeat nats-config: keys and permissions for a run on a NATS server of your own.

Writes a key for each role, a certificate if you name hosts, and nats-server.conf with the
accounts and tls blocks, to be included in the server's own configuration. offbeat up and
offbeat eval take the folder as --nats-keys; a service takes its own key as --nats-nkey-seed-file.

To add actors, repeat the command with a larger --actors, put nats-server.conf where each server
includes it, and restart the servers, one after another; a run continues meanwhile.

${describeFlags(NatsConfig.shape, natsConfigService)}
`;
}

/**
 * Writes the files and returns the exit code.
 *
 * @throws {UserError} listing every flag that is wrong.
 */
export async function natsConfig(argv: readonly string[], env: Environment): Promise<number> {
  const config = loadConfig(NatsConfig, natsConfigService, argv, env);
  process.stdout.write(await writeNatsConfig(config));
  return 0;
}

/**
 * Writes the files; existing keys are kept, and so is a certificate for the same hosts.
 *
 * @returns the files that exist now, and notes for the operator of the servers.
 * @throws {UserError} if the folder cannot be written, has a certificate and no hosts are named, or the configuration of
 *   another run.
 */
export async function writeNatsConfig(config: z.output<typeof NatsConfig>): Promise<string> {
  const { run, tlsHosts, tlsFolder } = config;
  const out = resolve(config.out);
  const path = join(out, 'nats-server.conf');
  const previous = existsSync(path) ? await readFile(path, 'utf8') : undefined;
  if (previous?.includes(JSON.stringify(runAccount(run))) === false) {
    const other = /^# Written by offbeat nats-config, for run (.+)\.$/m.exec(previous)?.[1];
    throw new UserError(
      `${path} ${other === undefined ? `does not name run ${run}` : `belongs to run ${other}`}. Replacing it would lock its ` +
        'clients out when the server next starts: choose another --out, or delete the file if no server includes it',
    );
  }
  if (tlsHosts === undefined && existsSync(join(out, authorityFile))) {
    throw new UserError(
      `--tls-hosts is missing, and ${out} has a certificate: name the same hosts again, or delete ${authorityFile}, server.pem and server-key.pem for a server without TLS`,
    );
  }
  await makeOutputFolder(out, '--out', 0o700);
  const keysBefore = (await identitiesIn(out)).map(identityName);
  const users = await writeKeys(out, run, runIdentities(config));
  const blocks = [
    `# Written by offbeat nats-config, for run ${run}.\n`,
    accountsBlock(accountsText(run, users)),
  ];
  const reported = [`${users.length} keys; their permissions are in ${path}`];
  if (tlsHosts !== undefined) {
    if (await ensureCertificate(out, tlsHosts.split(','))) {
      reported.push(
        `a new certificate: clients need ${join(out, authorityFile)} before the servers use it`,
      );
    }
    blocks.push(tlsText(certificateIn(tlsFolder ?? out)));
  }
  const text = blocks.join('');
  await replaceFile(path, text); // servers may include it
  if (text.length > mostBytes) {
    reported.push(
      `nats-server.conf has ${text.length} bytes, and a Secret of Kubernetes holds ${secretBytes}, the certificate included: choose a shorter name for the run, or fewer actors`,
    );
  }
  return [...reported, ...changesOf(previous, users, keysBefore), ''].join('\n');
}

const secretBytes = 1_048_576;
const mostBytes = secretBytes - 8_192; // the certificate and its key lie in the same Secret

/** @returns whether it is a new one. */
async function ensureCertificate(folder: string, hosts: readonly string[]): Promise<boolean> {
  if (await hasCertificateFor(folder, hosts)) return false;
  const { writeCertificates } = await import('./nats-server/certificates.js'); // slow to load
  await writeCertificates(folder, hosts);
  return true;
}

/**
 * Notes on the identities that the servers will accept and refuse from their next start on.
 *
 * @param previous the configuration that they include until now.
 */
function changesOf(
  previous: string | undefined,
  users: readonly NatsUser[],
  keysBefore: readonly string[],
): string[] {
  const isNew = ({ account }: NatsUser) => previous?.includes(JSON.stringify(account)) === false;
  const added = users.filter(isNew).map(({ name }) => name);
  const leftOut = keysBefore.filter((key) => !users.some(({ name }) => name === key));
  const reported = [];
  if (added.length > 0) {
    reported.push(
      `new: ${shortened(added)}; restart the servers, one after another: a reload does not give new accounts their rights`,
    );
  }
  if (leftOut.length > 0) {
    reported.push(
      `left out, although their keys exist: ${shortened(leftOut)}; --actors and --eval-actors say how many are admitted`,
    );
  }
  return reported;
}

function shortened(names: readonly string[]): string {
  return names.length <= 4 ? names.join(', ') : `${names[0]} to ${names.at(-1)} (${names.length})`;
}

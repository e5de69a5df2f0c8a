import { mkdir, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { text, whole } from '../../shared/config-fields.js';
import { loadConfig } from '../../shared/config.js';
import { describeFlags } from '../../shared/config-help.js';
import { RunName } from '../../shared/wire/run-config.js';
import { runIdentities } from './processes/members.js';
import { certificateIn, writeKeys } from './nats-server/keys.js';
import { accountsText } from './nats-server/accounts.js';
import { accountsBlock, tlsText } from './nats-server/server-config.js';

type Environment = Readonly<Record<string, string | undefined>>;

/** What the keys are for. */
export const NatsConfig = z.object({
  run: RunName.describe('the run that the keys are for.'),
  out: text.describe('folder for the keys and nats-server.conf; keys in it are kept.'),
  actors: whole
    .min(1)
    .max(256)
    .default(2)
    .describe(
      'how many actors: they are called actor-0, actor-1, …, as pods of a StatefulSet are.',
    ),
  evalActors: whole.min(0).max(256).default(0).describe('and eval-actor-0, …'),
  tlsHosts: z
    .string()
    .regex(/^[A-Za-z0-9.:-]+(,[A-Za-z0-9.:-]+)*$/, 'expected names or addresses, a comma between')
    .optional()
    .describe('names by which clients reach the server: with them it has a certificate.'),
  tlsFolder: text
    .optional()
    .describe('where the server will find server.pem and server-key.pem; by default in --out.'),
});

export const natsConfigService = 'offbeat-nats-config';

export function natsConfigHelp(): string {
  return `offbeat nats-config: keys and permissions for a run on a NATS server of your own.

Writes a key for each role, a certificate if you name hosts, and nats-server.conf with the
accounts and tls blocks, to be included in the server's own configuration. offbeat up and
offbeat eval take the folder as --nats-keys; a service takes its own key as --nats-nkey-seed-file.

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
  const out = resolve(config.out);
  await mkdir(out, { recursive: true, mode: 0o700 });
  const users = await writeKeys(out, config.run, runIdentities(config));
  const blocks = [
    `# Written by offbeat nats-config, for run ${config.run}.\n`,
    accountsBlock(accountsText(config.run, users)),
  ];
  if (config.tlsHosts !== undefined) {
    const { writeCertificates } = await import('./nats-server/certificates.js'); // slow to load
    await writeCertificates(out, config.tlsHosts.split(','));
    const folder = config.tlsFolder ?? out;
    blocks.push(tlsText(certificateIn(folder)));
  }
  const path = join(out, 'nats-server.conf');
  await writeFile(path, blocks.join(''));
  process.stdout.write(`${users.length} keys, and what they open in ${path}\n`);
  return 0;
}

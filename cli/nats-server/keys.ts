import { existsSync } from 'node:fs';
import { chmod, mkdir, open, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import {
  accountOf,
  importsOf,
  type Imports,
  identityName,
  permissionsOf,
  type Identity,
  type Permissions,
} from '../../shared/broker/permissions.js';
import { UserError } from '../../shared/base/errors.js';
import { runNames } from '../../shared/broker/names.js';
import { newSeed, publicKeyOf } from '../../shared/broker/access.js';

/** A client that a server accepts, and its permissions. */
export interface NatsUser {
  readonly name: string; // for people
  readonly publicKey: string;
  readonly permissions: Permissions;
  readonly account: string;
  readonly imports: Imports; // into that account, from the run's
}

/** Every identity of a run whose actors have these names. */
export function identitiesOf(actors: readonly string[]): Identity[] {
  return [
    { role: 'learner' },
    { role: 'reward' },
    { role: 'observer' },
    { role: 'operator' },
    ...actors.map((actor) => ({ role: 'actor', actor }) as const),
  ];
}

/**
 * Makes a secret for each identity that has none in `folder` yet: a file each, for its owner alone.
 *
 * @returns what the server must know of them, which is no secret.
 */
export async function writeKeys(
  folder: string,
  run: string,
  identities: readonly Identity[],
): Promise<NatsUser[]> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await chmod(folder, 0o700);
  const names = runNames(run);
  return await Promise.all(
    identities.map(async (identity) => ({
      name: identityName(identity),
      publicKey: await publicKeyIn(seedFile(folder, identity)),
      permissions: permissionsOf(identity, names),
      account: accountOf(identity, names),
      imports: importsOf(identity, names),
    })),
  );
}

/** The identities whose keys are in a folder. Actor names are those of the files. */
export async function identitiesIn(folder: string): Promise<Identity[]> {
  const files = (await readdir(folder)).filter((file) => file.endsWith('.nk')).sort();
  return files.flatMap((file): Identity[] => {
    const name = file.slice(0, -'.nk'.length);
    const actor = /^actor\.(.+)$/.exec(name)?.[1];
    if (actor !== undefined) return [{ role: 'actor', actor }];
    return isRole(name) ? [{ role: name }] : [];
  });
}

function isRole(name: string): name is Exclude<Identity['role'], 'actor'> {
  return ['learner', 'reward', 'observer', 'operator'].includes(name);
}

/** The credentials of a process with this identity; none without a folder of keys. */
export function accessWith(
  keyFolder: string | undefined,
  identity: Identity,
): { readonly natsNkeySeedFile?: string; readonly natsCaFile?: string } {
  if (keyFolder === undefined) return {};
  const ca = join(keyFolder, authorityFile);
  return {
    natsNkeySeedFile: seedFile(keyFolder, identity),
    ...(existsSync(ca) && { natsCaFile: ca }),
  };
}

/** Beside the seeds: the certificate of the authority that the server's own is signed by, with TLS. */
export const authorityFile = 'ca.pem';

/** The files that a server with TLS shows and keeps. */
export interface ServerCertificate {
  readonly certificateFile: string;
  readonly keyFile: string;
}

/** The certificate that `writeCertificates` has put there. */
export function certificateIn(folder: string): ServerCertificate {
  return {
    certificateFile: join(folder, 'server.pem'),
    keyFile: join(folder, 'server-key.pem'),
  };
}

function seedFile(folder: string, identity: Identity): string {
  return join(folder, `${identityName(identity)}.nk`);
}

/**
 * The public key of the seed in a file, which is created unless it exists.
 *
 * @throws {UserError} if the file holds no seed.
 */
async function publicKeyIn(path: string): Promise<string> {
  await createSeed(path);
  const seed = (await readFile(path, 'utf8')).trim();
  try {
    return publicKeyOf(seed);
  } catch (cause) {
    throw new UserError(
      `${path} holds no valid key. Restore it, or delete it: then the next call writes a new key, which the servers and this client must get`,
      { cause },
    );
  }
}

/** Writes a new seed, unless the file exists. Nothing is left of one that does not fit on the disk. */
async function createSeed(path: string): Promise<void> {
  const file = await open(path, 'wx', 0o600).catch((caught: unknown) => {
    if ((caught as NodeJS.ErrnoException).code !== 'EEXIST') throw caught;
  });
  if (file === undefined) return;
  try {
    await file.writeFile(`${newSeed()}\n`);
    await file.sync();
  } catch (caught) {
    await rm(path, { force: true });
    throw caught;
  } finally {
    await file.close();
  }
}

const shortestMs = 30 * 86_400_000; // actors can be added for a month without a new certificate

/**
 * Whether the certificate in `folder` is valid for these names and addresses for 30 more days; then clients
 * need no new authority. False if there is no readable certificate.
 */
export async function hasCertificateFor(
  folder: string,
  hosts: readonly string[],
  nowMs = Date.now(),
): Promise<boolean> {
  const { certificateFile, keyFile } = certificateIn(folder);
  try {
    const certificate = new X509Certificate(await readFile(certificateFile));
    const authority = new X509Certificate(await readFile(join(folder, authorityFile)));
    const key = createPrivateKey(await readFile(keyFile));
    return (
      certificate.verify(authority.publicKey) &&
      certificate.checkPrivateKey(key) &&
      Date.parse(certificate.validTo) - nowMs > shortestMs &&
      hosts.every((host) =>
        isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host),
      )
    );
  } catch {
    return false; // one of the three is missing or broken
  }
}

import { createPrivateKey, createPublicKey, type KeyObject, sign } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { type Authenticator, credsAuthenticator, type ConnectionOptions } from 'nats';
import { createUser, encode } from 'nkeys.js';
import { Codec } from 'nkeys.js/lib/codec.js';
import { z } from 'zod';
import { errorText, UserError } from '../base/errors.js';
import { natsAddress, number } from '../service/config-fields.js';
import { readSecretFile } from '../service/keys.js';

const path = z.string().min(1).optional();

/** Where the NATS server is, how long to wait for it, and how a service proves who it is. Secrets are files, never values. */
export const natsSettings = {
  natsUrl: natsAddress
    .default('nats://127.0.0.1:4222')
    .describe('address of the NATS server, with JetStream; tls:// requires TLS.'),
  natsNkeySeedFile: path.describe('file with the nkey seed of this service.'),
  natsCredsFile: path.describe('or a .creds file, for a server that uses JWTs.'),
  natsCaFile: path.describe("PEM file of the authority that signed the server's certificate."),
  startPatienceSeconds: number
    .min(0)
    .default(10)
    .describe('seconds to wait for NATS when the service starts.'),
};

/** The files of `natsSettings`. */
export interface NatsAccess {
  readonly natsNkeySeedFile?: string | undefined;
  readonly natsCredsFile?: string | undefined;
  readonly natsCaFile?: string | undefined;
}

/**
 * Reads the files into connection options of the NATS client.
 *
 * @throws {UserError} if a file cannot be read, has the wrong content, or is a secret that every user of this
 *   machine may read.
 */
export async function credentials(
  access: NatsAccess,
): Promise<Pick<ConnectionOptions, 'authenticator' | 'tls'>> {
  const { natsNkeySeedFile, natsCredsFile, natsCaFile } = access;
  if (natsNkeySeedFile !== undefined && natsCredsFile !== undefined) {
    throw new UserError('--nats-nkey-seed-file and --nats-creds-file exclude each other');
  }
  return {
    ...(natsNkeySeedFile !== undefined && {
      authenticator: proofOf(await readKeys(natsNkeySeedFile)),
    }),
    ...(natsCredsFile !== undefined && {
      authenticator: credsAuthenticator(await readCreds(natsCredsFile)),
    }),
    ...(natsCaFile !== undefined && {
      tls: { ca: await readText(natsCaFile, '--nats-ca-file') },
    }),
  };
}

async function readKeys(path: string): Promise<UserKeys> {
  const seed = (await readSecretFile(path, '--nats-nkey-seed-file')).trim();
  try {
    return keysOf(seed);
  } catch {
    // The message leaves the text out: it may be another secret.
    throw new UserError(
      `--nats-nkey-seed-file ${path} does not hold the seed of an nkey: 58 characters that begin with SU`,
    );
  }
}

/** Signs the text that the server chose, as the client's `nkeyAuthenticator` does. */
function proofOf({ publicKey, privateKey }: UserKeys): Authenticator {
  return (nonce = '') => ({
    nkey: publicKey,
    sig: encode(sign(null, Buffer.from(nonce), privateKey)),
  });
}

interface UserKeys {
  readonly publicKey: string; // in the text form of NATS
  readonly privateKey: KeyObject;
}

/**
 * The keys of a seed. They use the cryptography of Node.js, since the client's own is written in JavaScript and takes 0.1 s
 * of a start.
 *
 * @throws {Error} if the text is not a seed.
 */
function keysOf(seed: string): UserKeys {
  const { prefix, buf } = Codec.decodeSeed(Buffer.from(seed, 'ascii'));
  const der = Buffer.concat([beforeSeed, buf]);
  const privateKey = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  const { x = '' } = createPublicKey(privateKey).export({ format: 'jwk' });
  const publicKey = Codec.encode(prefix, Buffer.from(x, 'base64url'));
  return { publicKey: Buffer.from(publicKey).toString('ascii'), privateKey };
}

/** What precedes the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410). */
const beforeSeed = Buffer.from('302e020100300506032b657004220420', 'hex');

async function readCreds(path: string): Promise<Uint8Array> {
  const text = await readSecretFile(path, '--nats-creds-file');
  if (!/BEGIN NATS USER JWT[^]*BEGIN USER NKEY SEED/.test(text)) {
    throw new UserError(
      `--nats-creds-file ${path} is not a .creds file: it lacks the user's JWT or its seed`,
    );
  }
  return new TextEncoder().encode(text);
}

async function readText(path: string, flag: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    throw new UserError(`cannot read ${flag} ${path} (${errorText(cause)})`, { cause });
  }
}

/** Generates the secret of a new user: Ed25519, in the text form of NATS. */
export function newSeed(): string {
  return Buffer.from(createUser().getSeed()).toString('ascii');
}

/**
 * Returns the public key, which goes into the server's configuration.
 *
 * @throws {Error} if the text is not a seed.
 */
export function publicKeyOf(seed: string): string {
  return keysOf(seed).publicKey;
}

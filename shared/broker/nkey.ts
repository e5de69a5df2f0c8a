import { nkeys } from 'nats';

/** What this system uses of the client's keys, which come without types. */
interface KeyPair {
  getPublicKey(): string;
  getSeed(): Uint8Array;
}

/** A new user's secret: Ed25519, in the text form of NATS. */
export function newSeed(): string {
  const pair = (nkeys as { createUser(): KeyPair }).createUser();
  return Buffer.from(pair.getSeed()).toString('ascii');
}

/**
 * The public half, which the server is told.
 *
 * @throws {Error} if it is no seed.
 */
export function publicKeyOf(seed: string): string {
  const pairs = nkeys as { fromSeed(seed: Uint8Array): KeyPair };
  return pairs.fromSeed(Buffer.from(seed, 'ascii')).getPublicKey();
}

import { createHash } from 'node:crypto';

/** A seed as a number: for one that a double cannot hold, a number that follows from its digits. */
export function narrowSeed(seed: number | bigint | string): number {
  if (typeof seed === 'number') return seed;
  return createHash('sha256').update(String(seed)).digest().readUIntBE(0, 6);
}

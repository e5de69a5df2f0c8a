import { createHash } from 'node:crypto';

/** A seeded source of random numbers: the same seed gives the same sequence on every machine. */
export interface Random {
  /** Uniform in [0, 1), with 32 random bits. */
  next(): number;
  /** Uniform among 0, 1, …, n - 1. */
  int(n: number): number;
  /** A new array with the same elements in a random order. */
  shuffle<T>(items: readonly T[]): T[];
}

/**
 * The small fast counter generator sfc32, seeded from a digest of `seed`, so that near seeds (0, 1, 2)
 * give unrelated sequences.
 *
 * Source: PractRand (Chris Doty-Humphrey).
 */
export function createRandom(seed: number | string): Random {
  const digest = createHash('sha256').update(String(seed)).digest();
  let a = digest.readInt32LE(0);
  let b = digest.readInt32LE(4);
  let c = digest.readInt32LE(8);
  let counter = 1;

  const next = (): number => {
    const sum = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return (sum >>> 0) / 2 ** 32;
  };
  const int = (n: number): number => Math.floor(next() * n);
  const shuffle = <T>(items: readonly T[]): T[] => {
    const result = [...items];
    for (let i = result.length - 1; i > 0; i--) {
      const j = int(i + 1);
      [result[i], result[j]] = [result[j]!, result[i]!];
    }
    return result;
  };
  return { next, int, shuffle };
}

/**
 * The uniform random numbers in [0, 1) that choose the tokens of one rollout, one per token. So its tokens depend on
 * nothing but the seed, its index, its prompt and the policy, and anyone who has the policy can repeat the choice.
 *
 * They have float32's 24 bits: rounding must not turn one into 1.
 *
 * @param seed of the group.
 * @param rollout its index in the group.
 */
export function tokenDraws(seed: number, rollout: number): () => number {
  const random = createRandom(`group ${seed} rollout ${rollout}`);
  return () => Math.floor(random.next() * 2 ** 24) / 2 ** 24;
}

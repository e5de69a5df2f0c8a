import { integers, floats, type Feeds } from './graph/session.js';

/**
 * Splits sequences into batches of similar length, so that little is spent on padding.
 *
 * @param lengths tokens in each sequence.
 * @param maxTokens padded tokens in a batch, at most; a longer sequence travels alone.
 * @returns the sequences' indices, batch by batch, the shortest first; the same input gives the
 *   same batches.
 */
export function batchByLength(lengths: readonly number[], maxTokens: number): number[][] {
  const order = lengths.map((_, index) => index).sort((a, b) => lengths[a]! - lengths[b]! || a - b);
  const batches: number[][] = [];
  for (const index of order) {
    const batch = batches.at(-1);
    if (batch !== undefined && (batch.length + 1) * lengths[index]! <= maxTokens) batch.push(index);
    else batches.push([index]);
  }
  return batches;
}

/** Token arrays as one int64 tensor [batch, time], padded at the end with 0. */
export function paddedIntegers(sequences: readonly Int32Array[], time: number): Feeds[string] {
  const padded = new Int32Array(sequences.length * time);
  sequences.forEach((sequence, row) => {
    padded.set(sequence, row * time);
  });
  return integers(padded, [sequences.length, time]);
}

/** Per-token arrays as one float32 tensor [batch, time], padded at the end with 0. */
export function paddedFloats(sequences: readonly Float32Array[], time: number): Feeds[string] {
  const padded = new Float32Array(sequences.length * time);
  sequences.forEach((sequence, row) => {
    padded.set(sequence, row * time);
  });
  return floats(padded, [sequences.length, time]);
}

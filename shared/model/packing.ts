import { type Feeds, floats, integers } from './graph/session.js';

/** The part of a sequence that packing needs. */
export interface Packable {
  readonly tokens: Int32Array; // [N]
  readonly targetTokens: Int32Array; // [N]
  readonly idle: number; // positions from the start that do not contribute to the loss
}

/** One sequence's own part of a row. */
interface Segment {
  readonly sequence: number; // its index
  readonly offset: number; // where its own part begins in the row
  readonly length: number; // of this part, after the shared prefix
}

/**
 * Sequences with a common prefix in one row: the shared prefix once, then the own part of each. The
 * rollouts of a group share their prompt, so a row of short answers has about half the tokens of the
 * separate sequences.
 */
export interface PackedRow {
  readonly prefix: number; // tokens of the shared prefix
  readonly segments: readonly Segment[];
  readonly length: number; // tokens in all
}

/**
 * Packs neighbors that share a prefix into rows. Only positions that are idle in every sequence of the
 * row are shared, so computing them once loses nothing.
 *
 * @param maxRowTokens longest row of several sequences; the cost of attention is quadratic.
 */
export function packSharedPrefixes(
  sequences: readonly Packable[],
  maxRowTokens: number,
): PackedRow[] {
  const rows: PackedRow[] = [];
  for (let first = 0; first < sequences.length;) {
    let prefix = sequences[first]!.idle;
    let end = first + 1;
    for (; end < sequences.length; end++) {
      const shared = sharedLength(sequences[first]!, sequences[end]!, prefix);
      // A neighbor with a shorter common prefix would shorten the prefix of all the others.
      if (shared === 0 || (end > first + 1 && shared < prefix)) break;
      if (rowLength(sequences, first, end + 1, shared) > maxRowTokens) break;
      prefix = shared;
    }
    if (end === first + 1) prefix = 0;
    rows.push(rowOf(sequences, first, end, prefix));
    first = end;
  }
  return rows;
}

/** The number of leading positions, at most `limit`, that are equal and idle in two sequences. */
function sharedLength(a: Packable, b: Packable, limit: number): number {
  const most = Math.min(limit, b.idle);
  let shared = 0;
  while (
    shared < most &&
    a.tokens[shared] === b.tokens[shared] &&
    a.targetTokens[shared] === b.targetTokens[shared]
  ) {
    shared++;
  }
  return shared;
}

function rowLength(
  sequences: readonly Packable[],
  first: number,
  end: number,
  prefix: number,
): number {
  let length = prefix;
  for (let i = first; i < end; i++) length += sequences[i]!.tokens.length - prefix;
  return length;
}

function rowOf(
  sequences: readonly Packable[],
  first: number,
  end: number,
  prefix: number,
): PackedRow {
  const segments: Segment[] = [];
  let offset = prefix;
  for (let sequence = first; sequence < end; sequence++) {
    const length = sequences[sequence]!.tokens.length - prefix;
    segments.push({ sequence, offset, length });
    offset += length;
  }
  return { prefix, segments, length: offset };
}

/** Packs each sequence's array into a row: the prefix of the first, then the own part of each. */
export function packValues<A extends Int32Array | Float32Array>(
  row: PackedRow,
  arrays: readonly A[],
  into: A,
): A {
  into.set(arrays[row.segments[0]!.sequence]!.subarray(0, row.prefix));
  for (const { sequence, offset } of row.segments) {
    into.set(arrays[sequence]!.subarray(row.prefix), offset);
  }
  return into;
}

/** Unpacks one sequence's values from its row: the inverse of `packValues`. */
export function unpackValues(row: PackedRow, segment: Segment, values: Float32Array): Float32Array {
  const own = new Float32Array(row.prefix + segment.length);
  own.set(values.subarray(0, row.prefix));
  own.set(values.subarray(segment.offset, segment.offset + segment.length), row.prefix);
  return own;
}

/** The position of each of a row's tokens in its own sequence, [time]; padding has position 0. */
export function packedPositions(row: PackedRow, time: number): Int32Array {
  const positions = new Int32Array(time);
  for (let i = 0; i < row.prefix; i++) positions[i] = i;
  for (const { offset, length } of row.segments) {
    for (let i = 0; i < length; i++) positions[offset + i] = row.prefix + i;
  }
  return positions;
}

/**
 * The attention mask of a row: 0 or -∞, [time, time]. A token attends to the prefix and its own segment
 * up to itself; padding attends only to itself, so that its softmax is defined.
 */
export function packedBias(row: PackedRow, time: number, into: Float32Array): void {
  into.fill(-Infinity);
  const show = (i: number, from: number) => into.fill(0, i * time + from, i * time + i + 1);
  for (let i = 0; i < time; i++) show(i, i < row.prefix ? 0 : i);
  for (const { offset, length } of row.segments) {
    for (let i = offset; i < offset + length; i++) {
      into.fill(0, i * time, i * time + row.prefix);
      show(i, offset);
    }
  }
}

/**
 * Splits sequences into batches of similar length, so that there is little padding.
 *
 * @param lengths tokens in each sequence.
 * @param maxTokens padded tokens in a batch, at most; a longer sequence is a separate batch.
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

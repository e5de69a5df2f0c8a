import { sum } from '../base/statistics.js';
import { type Datum, datumInputs } from '../rl/datum.js';
import type { ForwardBackwardResult } from './types.js';

export interface ChunkLimits {
  readonly maxLength: number; // datums a request
  readonly maxBytes: number; // estimated bytes a request
}

/**
 * Splits the data of one call into requests, in order. A datum that exceeds the byte limit is sent alone.
 *
 * Source: the Python SDK 0.25 (§4.2 of the protocol reference).
 */
export function splitData(data: readonly Datum[], limits: ChunkLimits): Datum[][] {
  const chunks: Datum[][] = [];
  let bytes = 0;
  for (const datum of data) {
    const size = datumBytes(datum);
    const last = chunks.at(-1);
    if (last && last.length < limits.maxLength && bytes + size <= limits.maxBytes) {
      last.push(datum);
      bytes += size;
    } else {
      chunks.push([datum]);
      bytes = size;
    }
  }
  return chunks;
}

/** Size of a datum in a request, in bytes, by the SDK's estimate. */
export function datumBytes({ tokens, targetTokens, inputs }: Datum): number {
  const floats = datumInputs.reduce((sum, name) => sum + (inputs[name]?.length ?? 0), 0);
  return 4 * tokens.length + 8 * targetTokens.length + 4 * floats;
}

/** Groups the indices of the data by datum length, in order of first occurrence. */
export function groupByLength(data: readonly Datum[]): number[][] {
  const groups = new Map<number, number[]>();
  data.forEach(({ tokens: { length } }, i) => {
    const group = groups.get(length);
    if (group === undefined) groups.set(length, [i]);
    else group.push(i);
  });
  return [...groups.values()];
}

/**
 * Combines the results of a call's chunks, in order. Metrics are reduced as their name says (`loss:sum`); one
 * without a known reduction is kept only if all chunks agree on it. A single chunk keeps its metrics
 * unchanged.
 *
 * Source: the Python SDK 0.25 (§4.3), which refuses names without a reduction; servers send them.
 */
export function combineResults(results: readonly ForwardBackwardResult[]): ForwardBackwardResult {
  const [first] = results;
  if (first && results.length === 1) return first;

  const logprobs = results.flatMap((result) => result.logprobs);
  const metrics: Record<string, number> = {};
  for (const name of Object.keys(first?.metrics ?? {})) {
    const parts = results.map((result) => result.metrics[name]);
    if (!parts.every((value) => value !== undefined)) continue;
    const weights = results.map((result) => result.logprobs.length);
    Object.assign(metrics, combineMetric(name, parts, weights));
  }
  return { logprobs, metrics };
}

function combineMetric(
  name: string,
  values: readonly number[], // [chunks]
  weights: readonly number[], // [chunks], in datums
): Record<string, number> {
  const mean = () => sum(values.map((value, i) => value * weights[i]!)) / sum(weights);
  switch (name.split(':')[1]) {
    case 'sum':
      return { [name]: sum(values) };
    case 'min':
      return { [name]: Math.min(...values) };
    case 'max':
      return { [name]: Math.max(...values) };
    case 'mean':
      return { [name]: mean() };
    case 'slack':
      return { [name]: Math.max(...values) - mean() };
    case 'unique':
      return Object.fromEntries(values.map((value, i) => [i === 0 ? name : `${name}_${i}`, value]));
    default:
      return new Set(values).size === 1 ? { [name]: values[0]! } : {};
  }
}

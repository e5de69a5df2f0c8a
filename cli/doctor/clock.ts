import { finding, ok, type Finding } from './finding.js';

/** A server whose answers say what time it has. */
export interface Clock {
  readonly name: string; // for people
  readonly url: string; // that answers a GET, with whatever status
}

/** What an answer told of a clock, and between which moments of ours. All in ms since the epoch. */
export interface Reading {
  readonly date: number; // of its Date header: whole seconds, cut off
  readonly askedAt: number;
  readonly answeredAt: number;
}

/** Latencies and ages are told in tenths of seconds; a lease of an actor counts for ten. */
const toleratedMs = 2_000;

/**
 * @param clocks of other machines, as far as the user has named any.
 * @returns a finding for each that can be read; one that says so if none can.
 */
export async function clockFindings(
  clocks: readonly Clock[],
  signal: AbortSignal,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const clock of clocks) {
    const reading = await read(clock.url, signal);
    if (reading !== undefined) findings.push(clockFinding(clock.name, reading));
  }
  if (findings.length > 0) return findings;
  return [finding('clock', 'skipped', 'no server here tells its time', 'clockUnknown')];
}

export function clockFinding(name: string, reading: Reading): Finding {
  const skewMs = skewOf(reading);
  const found =
    skewMs === 0
      ? `that of ${name} agrees with ours`
      : `that of ${name} is ${(Math.abs(skewMs) / 1_000).toFixed(1)} s ${skewMs > 0 ? 'ahead' : 'behind'}`;
  return Math.abs(skewMs) > toleratedMs
    ? finding('clock', 'error', found, 'clockSkewed')
    : ok('clock', found);
}

/** By how much the other clock must at least be ahead, in ms; negative: behind; 0: it may be right. */
export function skewOf({ date, askedAt, answeredAt }: Reading): number {
  if (date > answeredAt) return date - answeredAt;
  return Math.min(0, date + 999 - askedAt);
}

async function read(url: string, signal: AbortSignal): Promise<Reading | undefined> {
  const askedAt = Date.now();
  try {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(5_000)]);
    const response = await fetch(url, { signal: limit, redirect: 'manual' });
    const answeredAt = Date.now();
    await response.body?.cancel();
    const date = Date.parse(response.headers.get('date') ?? '');
    return Number.isNaN(date) ? undefined : { date, askedAt, answeredAt };
  } catch {
    signal.throwIfAborted();
    return undefined; // whoever looks at the server itself tells why
  }
}

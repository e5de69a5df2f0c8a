/** A dashboard that answers one question; each panel answers a part of it. */
export interface Question {
  readonly uid: string; // also the name of the file
  readonly title: string;
  readonly description: string;
  readonly panels: readonly Panel[];
}

export interface Panel {
  readonly title: string;
  readonly description: string; // how to interpret the panel
  readonly unit: Unit;
  readonly queries: readonly Query[];
  /** Whether the series are parts of a whole. */
  readonly isStacked?: boolean;
}

export interface Query {
  readonly promql: string;
  readonly legend: string; // may contain {{labels}}
}

/** Grafana's names of units. */
export type Unit = 'short' | 'percentunit' | 's' | 'bytes' | 'ops' | 'none';

/** Returns a selector for the runs chosen in the dashboard, with further matchers. */
export function ofRun(metric: string, ...matchers: readonly string[]): string {
  return `${metric}{${['run=~"$run"', ...matchers].join(', ')}}`;
}

/** Returns a counter's rate per second, summed by `run` and the given labels. */
export function rate(
  metric: string,
  by: readonly string[],
  ...matchers: readonly string[]
): string {
  const labels = ['run', ...by].join(', ');
  return `sum by (${labels}) (rate(${ofRun(metric, ...matchers)}[$__rate_interval]))`;
}

/** Returns the same rate, or 0 when the counter has no series yet, so that the panel shows no gap. */
export function rateOrZero(metric: string, by: readonly string[]): string {
  return `${rate(metric, by)} or vector(0)`;
}

/** Returns the mean of a histogram's observations, by the given labels. */
export function mean(histogram: string, by: readonly string[] = [], ...matchers: string[]): string {
  return `${rate(`${histogram}_sum`, by, ...matchers)} / ${rate(`${histogram}_count`, by, ...matchers)}`;
}

/** Returns a quantile of a histogram's observations, estimated from its buckets. */
export function quantile(q: number, histogram: string, ...matchers: readonly string[]): string {
  return `histogram_quantile(${q}, ${rate(`${histogram}_bucket`, ['le'], ...matchers)})`;
}

/** A dashboard answers one question; each of its panels says what part of it. */
export interface Question {
  readonly uid: string; // also the file's name
  readonly title: string;
  readonly description: string;
  readonly panels: readonly Panel[];
}

export interface Panel {
  readonly title: string;
  readonly description: string; // what to read from it
  readonly unit: Unit;
  readonly queries: readonly Query[];
  /** Its queries' series are parts of a whole. */
  readonly isStacked?: boolean;
}

export interface Query {
  readonly promql: string;
  readonly legend: string; // with {{labels}}
}

/** As Grafana calls them. */
export type Unit = 'short' | 'percentunit' | 's' | 'bytes' | 'ops' | 'none';

/** The labels that choose what the dashboard's variable says; further matchers follow. */
export function ofRun(metric: string, ...matchers: readonly string[]): string {
  return `${metric}{${['run=~"$run"', ...matchers].join(', ')}}`;
}

/** A counter's rate a second, summed by these labels. */
export function rate(
  metric: string,
  by: readonly string[],
  ...matchers: readonly string[]
): string {
  const labels = ['run', ...by].join(', ');
  return `sum by (${labels}) (rate(${ofRun(metric, ...matchers)}[$__rate_interval]))`;
}

/** The same, with 0 where the counter has never counted: good news, and no gap. */
export function rateOrZero(metric: string, by: readonly string[]): string {
  return `${rate(metric, by)} or vector(0)`;
}

/** The mean of what a histogram observed, by these labels. */
export function mean(histogram: string, by: readonly string[] = [], ...matchers: string[]): string {
  return `${rate(`${histogram}_sum`, by, ...matchers)} / ${rate(`${histogram}_count`, by, ...matchers)}`;
}

/** A quantile of what a histogram observed, estimated from its buckets. */
export function quantile(q: number, histogram: string, ...matchers: readonly string[]): string {
  return `histogram_quantile(${q}, ${rate(`${histogram}_bucket`, ['le'], ...matchers)})`;
}

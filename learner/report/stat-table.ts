import { Gauge, Histogram } from 'prom-client';

/** A number of a step and its names: a key of `metrics.jsonl`, a metric of Prometheus, or both. */
export type Stat<Data> = {
  /** Key of the number, or of the mean of several; `{phase}` in it is replaced by the value of that label. */
  readonly jsonl?: string;
  readonly jsonlMax?: string; // key of the largest of several
  /** The kinds of parts that also have the number, as in `ess_ratio/staleness_2`. */
  readonly parts?: readonly string[];
  /** @returns undefined if this step does not have the number. */
  readonly of: (data: Data) => number | readonly number[] | undefined;
} & (Metric | { readonly prometheus?: undefined; readonly by?: undefined });

/** A gauge of the number or, with buckets, a histogram of each value. Rows of one table that differ in `by` share it. */
interface Metric {
  readonly prometheus: string;
  readonly help: string;
  readonly by?: Readonly<Record<string, string>>; // its labels
  readonly buckets?: readonly number[];
}

/** Numbers that are computed from the same data, one per row. Adding a row adds a number. */
export class StatTable<Data> {
  readonly #rows: readonly Stat<Data>[];
  readonly #metrics = new Map<string, Gauge | Histogram>();

  /** @throws {Error} if the process already has a metric with the name of one of these. */
  constructor(rows: readonly Stat<Data>[]) {
    this.#rows = rows;
    for (const row of rows) {
      if (row.prometheus === undefined || this.#metrics.has(row.prometheus)) continue;
      const { prometheus: name, help, by = {}, buckets, jsonl = '' } = row;
      const placeholders = Array.from(jsonl.matchAll(/\{(\w+)\}/g), ([, label]) => label!);
      const options = { name, help, labelNames: [...Object.keys(by), ...placeholders] };
      const metric = buckets
        ? new Histogram({ ...options, buckets: [...buckets] })
        : new Gauge(options);
      this.#metrics.set(name, metric);
    }
  }

  /**
   * Computes the numbers, sets the gauges and observes in the histograms.
   *
   * @param labels for the placeholders in the keys.
   * @returns the numbers by their keys.
   */
  record(data: Data, labels: Readonly<Record<string, string>> = {}): Record<string, number> {
    for (const { prometheus, by = {}, parts = [] } of this.#rows) {
      // An earlier step may have had parts that this one lacks.
      if (parts.some((label) => label in by)) this.#metrics.get(prometheus!)!.reset();
    }
    return this.#record(this.#rows, data, labels);
  }

  /**
   * Records the rows that have this kind of part, for each part; exports them to Prometheus only where
   * the kind is a label of the row. Must be called after `record`.
   */
  recordParts(kind: string, parts: Iterable<readonly [number, Data]>): Record<string, number> {
    const rows = this.#rows
      .filter((row) => row.parts?.includes(kind))
      .map((row) => (kind in (row.by ?? {}) ? row : { ...row, prometheus: undefined }));
    const report: Record<string, number> = {};
    for (const [part, data] of parts) {
      const ofPart = this.#record(rows as Stat<Data>[], data, { [kind]: String(part) });
      for (const [key, value] of Object.entries(ofPart)) report[`${key}/${kind}_${part}`] = value;
    }
    return report;
  }

  #record(
    rows: readonly Stat<Data>[],
    data: Data,
    labels: Readonly<Record<string, string>>,
  ): Record<string, number> {
    const report: Record<string, number> = {};
    for (const { jsonl, jsonlMax, prometheus, by, of } of rows) {
      const found = of(data);
      if (found === undefined) continue;
      const values = typeof found === 'number' ? [found] : found;
      const metric = prometheus === undefined ? undefined : this.#metrics.get(prometheus);
      const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
      if (metric instanceof Histogram) {
        for (const value of values) metric.observe({ ...by, ...labels }, value);
      } else metric?.set({ ...by, ...labels }, mean);
      const key = jsonl?.replace(/\{(\w+)\}/g, (_, label: string) => labels[label]!);
      if (key !== undefined) report[key] = mean;
      if (jsonlMax !== undefined) {
        report[jsonlMax] = values.reduce((most, value) => Math.max(most, value), -Infinity);
      }
    }
    return report;
  }
}

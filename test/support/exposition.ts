/** One series of Prometheus' text format. */
export interface Series {
  readonly metric: string; // without the suffixes of histograms
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The type of each metric that a `/metrics` page declares. */
export function typesIn(text: string): ReadonlyMap<string, string> {
  return new Map(
    [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name!, type!]),
  );
}

/** The series in a `/metrics` page. */
export function parseExposition(text: string): Series[] {
  const types = typesIn(text);
  return [...text.matchAll(/^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/gm)].map(
    ([, name, labels, value]) => {
      const base = name!.replace(/_(bucket|sum|count)$/, '');
      return {
        metric: types.get(base) === 'histogram' ? base : name!,
        labels: Object.fromEntries(
          [...(labels ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, of]) => [
            key!,
            of!,
          ]),
        ),
        value: Number(value),
      };
    },
  );
}

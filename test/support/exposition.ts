/** One series of Prometheus' text format. */
export interface Series {
  readonly metric: string; // without the suffixes of histograms
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The series in a `/metrics` page. */
export function parseExposition(text: string): Series[] {
  const histograms = new Set(
    [...text.matchAll(/^# TYPE (\S+) histogram$/gm)].map(([, name]) => name!),
  );
  return [...text.matchAll(/^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/gm)].map(
    ([, name, labels, value]) => {
      const base = name!.replace(/_(bucket|sum|count)$/, '');
      return {
        metric: histograms.has(base) ? base : name!,
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

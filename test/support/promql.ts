import { parser } from '@prometheus-io/lezer-promql';

/**
 * The names of the metrics that an expression selects, in order.
 *
 * @throws {SyntaxError} with the position, if it is no PromQL.
 */
export function metricsIn(promql: string): string[] {
  const names: string[] = [];
  parser.parse(promql).iterate({
    enter: ({ type, from, to, node }) => {
      if (type.isError) {
        throw new SyntaxError(`no PromQL at ${JSON.stringify(promql.slice(from))}: ${promql}`);
      }
      if (type.name === 'Identifier' && node.parent?.name === 'VectorSelector') {
        names.push(promql.slice(from, to));
      }
    },
  });
  return names;
}

/** The series names that Prometheus stores for a metric of this type. */
export function seriesOf({ name, type }: { name: string; type: string }): string[] {
  return type === 'histogram'
    ? ['bucket', 'sum', 'count'].map((suffix) => `${name}_${suffix}`)
    : [name];
}

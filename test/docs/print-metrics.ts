/** Prints as JSON the metrics declared by modules, its arguments, and by all their imports. */
import { register } from 'prom-client';
import type { DeclaredMetric } from './metrics-table.js';

for (const module of process.argv.slice(2)) await import(module);
const declared = (await register.getMetricsAsJSON()).map(({ name, help, type }): DeclaredMetric => {
  // prom-client does not expose the names of the labels.
  const { labelNames } = register.getSingleMetric(name) as unknown as { labelNames: string[] };
  return { name, help, type: String(type), labels: labelNames };
});
process.stdout.write(JSON.stringify(declared));

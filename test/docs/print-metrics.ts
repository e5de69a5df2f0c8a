/** Prints as JSON the metrics declared by a module, its first argument, and by all its imports. */
import { register } from 'prom-client';
import type { DeclaredMetric } from './metrics-table.js';

const [module = ''] = process.argv.slice(2);
await import(module);
const declared = (await register.getMetricsAsJSON()).map(({ name, help, type }): DeclaredMetric => {
  // prom-client does not expose the names of the labels.
  const { labelNames } = register.getSingleMetric(name) as unknown as { labelNames: string[] };
  return { name, help, type: String(type), labels: labelNames };
});
process.stdout.write(JSON.stringify(declared));

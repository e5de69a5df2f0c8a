/** Prints as JSON what metrics a module and all that it imports declare; the module is the first argument. */
import { register } from 'prom-client';
import type { DeclaredMetric } from './metrics-table.js';

const [module = ''] = process.argv.slice(2);
await import(module);
const declared = (await register.getMetricsAsJSON()).map(({ name, help, type }): DeclaredMetric => {
  // prom-client keeps the names of the labels to itself.
  const { labelNames } = register.getSingleMetric(name) as unknown as { labelNames: string[] };
  return { name, help, type: String(type), labels: labelNames };
});
process.stdout.write(JSON.stringify(declared));

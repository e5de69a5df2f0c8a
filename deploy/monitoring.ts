/** `npm run monitoring`: writes the dashboards and the PrometheusRule of the Prometheus operator. */
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { packageRoot } from '../shared/base/package-root.js';
import { monitoringFiles } from './monitoring-files.js';

for (const [path, text] of await monitoringFiles()) {
  await mkdir(dirname(join(packageRoot, path)), { recursive: true });
  await writeFile(join(packageRoot, path), text);
}

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';
import { packageRoot } from '../../shared/base/package-root.js';

/** The rule files as one object for Prometheus' operator. */
export async function prometheusRule(): Promise<string> {
  const files = ['recording.yaml', 'alerts.yaml'];
  const groups = await Promise.all(files.map(groupsOf));
  const rule = {
    apiVersion: 'monitoring.coreos.com/v1',
    kind: 'PrometheusRule',
    metadata: { name: 'offbeat' },
    spec: { groups: groups.flat() },
  };
  return `# Made by npm run monitoring from ${files.join(' and ')} of deploy/prometheus.\n${stringify(rule)}`;
}

async function groupsOf(file: string): Promise<unknown[]> {
  const text = await readFile(join(packageRoot, 'deploy/prometheus', file), 'utf8');
  return (parse(text) as { groups: unknown[] }).groups;
}

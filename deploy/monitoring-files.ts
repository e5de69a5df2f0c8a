import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';
import { packageRoot } from '../shared/base/package-root.js';
import { dashboardOf, questions } from './grafana/dashboard.js';

/** Returns the files that `npm run monitoring` generates, by path in the project. */
export async function monitoringFiles(): Promise<Map<string, string>> {
  const dashboards = questions.map((question): [string, string] => [
    `deploy/grafana/dashboards/${question.uid}.json`,
    `${JSON.stringify(dashboardOf(question), undefined, 2)}\n`,
  ]);
  return new Map([
    ...dashboards,
    ['deploy/k8s/components/monitoring/prometheus-rule.yaml', await prometheusRule()],
  ]);
}

/** Returns the rule files as one PrometheusRule for the Prometheus operator. */
async function prometheusRule(): Promise<string> {
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

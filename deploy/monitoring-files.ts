import { dashboardOf, questions } from './grafana/dashboard.js';
import { prometheusRule } from './prometheus/prometheus-rule.js';

/** Every file that is made from the code, by its path in the project: what `npm run monitoring` writes. */
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

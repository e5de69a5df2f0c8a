import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { runCommand } from '../../../cli/run-command.js';
import { packageRoot } from '../../../shared/base/package-root.js';
import { declaredMetrics, services } from '../../docs/metrics-table.js';
import { prometheusPrograms } from '../../support/prometheus.js';
import { metricsIn, seriesOf } from '../../support/promql.js';

interface Rule {
  readonly record?: string;
  readonly alert?: string;
  readonly expr: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** The fields of a promtool unit test that this file reads. */
interface UnitTest {
  readonly input_series: readonly { readonly series: string }[];
  readonly alert_rule_test?: readonly {
    readonly alertname: string;
    readonly exp_alerts: readonly object[];
  }[];
}

const files = ['recording', 'alerts'].map((name) => `deploy/prometheus/${name}.yaml`);

/** The promtool commands, run in the project's root. */
const checks: readonly [what: string, words: readonly string[]][] = [
  ['rules that Prometheus accepts', ['check', 'rules', ...files]],
  [
    'a configuration that Prometheus accepts',
    ['check', 'config', 'deploy/prometheus/prometheus.yml'],
  ],
  ['rules that pass their unit tests', ['test', 'rules', 'test/deploy/prometheus/rules.unit.yaml']],
];

describe('deploy/prometheus', { timeout: 300_000 }, async () => {
  const rules = (await Promise.all(files.map(rulesOf))).flat();
  const alerts = rules.filter(({ alert }) => alert !== undefined);

  it('deploy/prometheus queries only existing metrics', async () => {
    const declared = (await Promise.all(services.map(declaredMetrics))).flat();
    const recorded = rules.flatMap(({ record }) => record ?? []);
    const known = new Set([...declared.flatMap(seriesOf), ...recorded, ...thirdPartyMetrics]);
    const queried = rules.flatMap(({ expr }) => metricsIn(expr));
    assert(queried.length > rules.length / 2);
    assert.deepEqual(
      queried.filter((name) => !known.has(name)),
      [],
    );
  });

  it('deploy/prometheus gives every alert a severity, a summary and a description', () => {
    assert.deepEqual(
      alerts.filter(
        ({ labels, annotations }) =>
          !/^(warning|critical)$/.test(labels?.['severity'] ?? '') ||
          !/[.]$/.test(annotations?.['summary'] ?? '') ||
          !/[.]$/.test(annotations?.['description'] ?? ''),
      ),
      [],
    );
  });

  it('every alert has unit tests in which it fires and does not fire, on series that it reads', async () => {
    const path = join(packageRoot, 'test/deploy/prometheus/rules.unit.yaml');
    const { tests } = parse(await readFile(path, 'utf8')) as { tests: UnitTest[] };
    const recorded = new Map(rules.map(({ record, expr }) => [record, expr]));
    const readBy = (expr: string): string[] =>
      metricsIn(expr).flatMap((name) => [name, ...readBy(recorded.get(name) ?? 'vector(0)')]);
    for (const { alert, expr } of alerts) {
      const read = new Set(readBy(expr));
      const cases = tests
        .filter(({ input_series }) =>
          input_series.some(({ series }) => read.has(series.replace(/\{.*/, ''))),
        )
        .flatMap(({ alert_rule_test: cases = [] }) => cases)
        .filter(({ alertname }) => alertname === alert);
      const raised = cases.map(({ exp_alerts }) => exp_alerts.length > 0);
      assert(raised.includes(true), `no test raises ${alert}`);
      assert(raised.includes(false), `no test shows that ${alert} does not fire`);
    }
  });

  const programs = await prometheusPrograms();
  const skip = typeof programs === 'string' && programs;
  for (const [what, words] of checks) {
    it(`deploy/prometheus has ${what}`, { skip }, async () => {
      assert(typeof programs !== 'string');
      const { code, output } = await runCommand(programs.promtool, words, {
        cwd: packageRoot,
        timeoutMs: 240_000, // a minute was too short beside twenty other processes
      });
      assert.equal(code, 0, output);
    });
  }
});

/** Metrics of Prometheus itself, kube-state-metrics and prometheus-nats-exporter. */
const thirdPartyMetrics = [
  'up',
  'kube_job_status_succeeded',
  'nats_varz_jetstream_stats_storage',
  'nats_varz_jetstream_config_max_storage',
];

async function rulesOf(file: string): Promise<Rule[]> {
  const text = await readFile(join(packageRoot, file), 'utf8');
  const { groups } = parse(text) as { groups: { rules: Rule[] }[] };
  return groups.flatMap((group) => group.rules);
}

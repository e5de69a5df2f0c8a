import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { monitoringFiles } from '../../../deploy/monitoring-files.js';
import { packageRoot } from '../../../shared/base/package-root.js';
import { declaredMetrics, services } from '../../docs/metrics-table.js';
import { canonicalSet } from '../../support/canonical-metrics.js';
import { dashboards, type ShownPanel } from '../../support/dashboards.js';
import { metricsIn, seriesOf } from '../../support/promql.js';

describe('the dashboards', async () => {
  const shown = await dashboards();
  const panels = shown.flatMap(({ title, panels }) => panels.map((panel) => ({ ...panel, title })));
  const targets = panels.flatMap(({ targets }) => targets);

  it('dashboards have the four expected titles', () => {
    assert.deepEqual(
      shown.map(({ title }) => title),
      [
        'Offbeat: is anything broken?',
        'Offbeat: is it learning?',
        'Offbeat: is it off-policy?',
        'Offbeat: who waits for whom?',
      ],
    );
  });

  it('dashboards match the generated files, as does the PrometheusRule', async () => {
    for (const [path, text] of await monitoringFiles()) {
      const found = await readFile(join(packageRoot, path), 'utf8').catch(() => '');
      assert(found === text, `run \`npm run monitoring\` and commit ${path}`);
    }
    const files = await readdir(join(packageRoot, 'deploy/grafana/dashboards'));
    assert.equal(files.length, shown.length);
  });

  it('dashboards query only existing metrics', async () => {
    const declared = (await Promise.all(services.map(declaredMetrics))).flat();
    const recorded = (await recordingRules()).map(({ record }) => record);
    const known = new Set([...declared.flatMap(seriesOf), ...recorded, ...thirdPartyMetrics]);
    const queried = targets.flatMap(({ promql }) => metricsIn(promql));
    assert(queried.length >= targets.length);
    assert.deepEqual(
      queried.filter((name) => !known.has(name)),
      [],
    );
  });

  it('dashboards show every metric of the canonical set, directly or by a recording rule', async () => {
    const recorded = new Map((await recordingRules()).map(({ record, expr }) => [record, expr]));
    const queried = targets.flatMap(({ promql }) => metricsIn(promql));
    const shown = new Set(queried.flatMap((name) => metricsIn(recorded.get(name) ?? name)));
    const missing = canonicalSet
      .flatMap(({ exported }) => exported)
      .filter((metric) => !seriesOf(metric).some((series) => shown.has(series)));
    assert.deepEqual(
      missing.map(({ name }) => name),
      [],
    );
  });

  it('dashboards filter by the chosen runs in every selector', () => {
    const selectors = targets.flatMap(({ promql }) => promql.match(/\{[^}]*\}/g) ?? []);
    assert(selectors.length >= targets.length);
    assert.deepEqual(
      selectors.filter((selector) => !/run=~"\.\*\|?"/.test(selector)), // an alert may have no run
      [],
    );
  });

  it('dashboards show the engine of each pod by itself, since all may have the same local address', () => {
    const waiting = shown.find(({ title }) => title === 'Offbeat: who waits for whom?')!;
    const queries = waiting.panels
      .flatMap(({ targets }) => targets.map(({ promql }) => promql))
      .filter((promql) => promql.includes('rl_actor_engine_'));
    assert(queries.length > 0);
    assert.deepEqual(
      queries.filter((promql) => !promql.includes('by (run, instance, engine')),
      [],
    );
  });

  it('dashboards draw a few lines of what each process or engine reports, however many there are', () => {
    const many = targets.filter(({ promql }) => promql.includes('instance'));
    assert(many.length > 0);
    assert.deepEqual(
      many.filter(({ promql }) => !/^(topk|quantile) by /.test(promql)),
      [],
    );
  });

  it('dashboards describe every panel, with unique titles and positions', () => {
    assert.deepEqual(
      panels.filter(({ description }) => !/^[A-Z].*\.$/.test(description)),
      [],
    );
    const places = ({ gridPos: { x, y, w, h } }: ShownPanel) => [x, y, w, h].join();
    for (const { panels } of shown) {
      assert.equal(new Set(panels.map(({ name }) => name)).size, panels.length);
      assert.equal(new Set(panels.map(places)).size, panels.length);
    }
  });
});

async function recordingRules(): Promise<{ readonly record: string; readonly expr: string }[]> {
  const rules = await readFile(join(packageRoot, 'deploy/prometheus/recording.yaml'), 'utf8');
  const { groups } = parse(rules) as { groups: { rules: { record: string; expr: string }[] }[] };
  return groups.flatMap((group) => group.rules);
}

/** Metrics of Prometheus itself and of prom-client. */
const thirdPartyMetrics = [
  'up',
  'ALERTS',
  'nodejs_eventloop_lag_p99_seconds',
  'process_resident_memory_bytes',
  'process_cpu_seconds_total',
];

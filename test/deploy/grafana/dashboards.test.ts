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

  it('ask four questions', () => {
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

  it('are what the code makes, and so are the rules of the operator', async () => {
    for (const [path, text] of await monitoringFiles()) {
      const found = await readFile(join(packageRoot, path), 'utf8').catch(() => '');
      assert(found === text, `run \`npm run monitoring\` and commit ${path}`);
    }
    const files = await readdir(join(packageRoot, 'deploy/grafana/dashboards'));
    assert.equal(files.length, shown.length);
  });

  it('ask in PromQL, and only for metrics that exist', async () => {
    const declared = (await Promise.all(services.map(declaredMetrics))).flat();
    const recorded = (await recordingRules()).map(({ record }) => record);
    const known = new Set([...declared.flatMap(seriesOf), ...recorded, ...ofOthers]);
    const asked = targets.flatMap(({ promql }) => metricsIn(promql));
    assert(asked.length >= targets.length);
    assert.deepEqual(
      asked.filter((name) => !known.has(name)),
      [],
    );
  });

  it('show every metric of the canonical set, by itself or by a rule that records it', async () => {
    const recorded = new Map((await recordingRules()).map(({ record, expr }) => [record, expr]));
    const asked = targets.flatMap(({ promql }) => metricsIn(promql));
    const shown = new Set(asked.flatMap((name) => metricsIn(recorded.get(name) ?? name)));
    const missing = canonicalSet
      .flatMap(({ exported }) => exported)
      .filter((metric) => !seriesOf(metric).some((series) => shown.has(series)));
    assert.deepEqual(
      missing.map(({ name }) => name),
      [],
    );
  });

  it('let the reader choose runs, by every selector', () => {
    const selectors = targets.flatMap(({ promql }) => promql.match(/\{[^}]*\}/g) ?? []);
    assert(selectors.length >= targets.length);
    assert.deepEqual(
      selectors.filter((selector) => !selector.includes('run=~".*"')),
      [],
    );
  });

  it('say of every panel what to read from it, and nothing twice', () => {
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

/** Of Prometheus itself, and of prom-client. */
const ofOthers = [
  'up',
  'ALERTS',
  'nodejs_eventloop_lag_p99_seconds',
  'process_resident_memory_bytes',
  'process_cpu_seconds_total',
];

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { codeIn, metricsPage, tableUnder } from '../docs/metrics-table.js';
import { until } from '../support/broker.js';
import { parseExposition, type Series } from '../support/exposition.js';
import { UpProcess } from '../support/up-process.js';

const flags = [
  ...['--groups-per-batch=4', '--group-size=8', '--num-minibatches=2', '--lora-rank=2'],
  ...['--eval-problems=4', '--eval-samples=1', '--eval-every-versions=2', '--max-minutes=30'],
];
const services = ['learner', 'actor-0', 'reward-service', 'local-backend'];

describe('what a run tells of itself', { timeout: 480_000 }, () => {
  it('is what the page on metrics promises, row by row', async () => {
    const page = await readFile(metricsPage, 'utf8');
    const questions = tableUnder(page, '## What to look at');
    const fields = tableUnder(page, '## Every field of `metrics.jsonl`');

    await using up = await UpProcess.start(flags);
    const lines = () => journal(up);
    const named = questions.flatMap(([, , inJournal]) => codeIn(inJournal!));
    const missing = async () => {
      const found = new Set((await lines()).flatMap((line) => Object.keys(line)));
      return named.filter((name) => !found.has(name));
    };
    await up.says(/step \d/);
    // The queues and actors are looked at every few seconds, and evaluations take their time.
    await until(async () => (await missing()).length === 0 || (await lines()).length >= 60);
    assert.deepEqual(await missing(), []);

    const exported = await Promise.all(services.map((service) => scrape(up, service)));
    const series = exported.flat();
    const names = new Set(series.map(({ metric }) => metric));
    const promised = questions.flatMap(([, inPrometheus]) => codeIn(inPrometheus!));
    assert.deepEqual(
      promised.filter((name) => !names.has(name)),
      [],
    );
    for (const [i, service] of services.entries()) assertBounded(service, exported[i]!);

    const documented = fields.map(([field]) => patternOf(codeIn(field!)));
    const found = new Set((await lines()).flatMap((line) => Object.keys(line)));
    const unexplained = [...found].filter(
      (key) => !documented.some((pattern) => pattern.test(key)),
    );
    assert.deepEqual(unexplained, []);
    const always = fields.filter(([, , only]) => only === '');
    const absent = always.filter(
      ([field]) => ![...found].some((key) => patternOf(codeIn(field!)).test(key)),
    );
    assert.deepEqual(absent, []);
  });
});

async function journal(up: UpProcess): Promise<Record<string, unknown>[]> {
  const text = await up.read('metrics.jsonl').catch(() => '');
  const complete = text.slice(0, text.lastIndexOf('\n') + 1);
  return complete
    .split('\n')
    .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Record<string, unknown>]));
}

async function scrape(up: UpProcess, service: string): Promise<Series[]> {
  const log = await up.read(`logs/${service}.log`);
  const [, port] = /"healthPort":(\d+)/.exec(log)!;
  const response = await fetch(`http://127.0.0.1:${port}/metrics`);
  return parseExposition(await response.text());
}

/** No label tells problems, tickets, runs or processes apart. */
function assertBounded(service: string, series: readonly Series[]): void {
  const counts = new Map<string, number>();
  for (const { metric, labels } of series) {
    if (labels['le'] !== undefined) continue;
    counts.set(metric, (counts.get(metric) ?? 0) + 1);
    for (const value of Object.values(labels)) {
      assert(!/train-\d|eval-\d|[0-9a-f]{8}/.test(value), `${service} ${metric} ${value}`);
    }
  }
  for (const [metric, count] of counts) assert(count <= 40, `${service}: ${count} of ${metric}`);
}

/** `a/<b>` and `c`: whatever stands between the slashes where a name is in brackets. */
function patternOf(names: readonly string[]): RegExp {
  const alternatives = names.map((name) =>
    name
      .split(/<[^>]+>/)
      .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
      .join('[^/]+'),
  );
  return new RegExp(`^(${alternatives.join('|')})$`);
}

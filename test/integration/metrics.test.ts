import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { codeIn, metricsPage, tableUnder } from '../docs/metrics-table.js';
import { canonicalSet, eventLoop, namesOfTheSeed } from '../support/canonical-metrics.js';
import { parseExposition, type Series, typesIn } from '../support/exposition.js';
import { UpProcess } from '../support/up-process.js';
import { until } from '../support/waiting.js';

const flags = [
  ...['--groups-per-batch=4', '--group-size=8', '--num-minibatches=2', '--lora-rank=2'],
  '--train-size=512',
  ...[
    '--eval-problems=4',
    '--eval-samples=1',
    '--eval-every-versions=2',
    '--max-minutes=30',
    '--actors=1',
    '--price-trainer-hour=1',
  ],
];
const services = ['learner', 'actor-0', 'reward-service', 'local-backend'];
const processOf = { learner: 'learner', actor: 'actor-0' } as const;

describe('the metrics of a run', { timeout: 480_000 }, () => {
  let up: UpProcess;
  let found: ReadonlySet<string>; // fields of metrics.jsonl
  const pages = new Map<string, string>(); // `/metrics`, by service
  let tables: { readonly questions: string[][]; readonly fields: string[][] };

  before(async () => {
    const page = await readFile(metricsPage, 'utf8');
    tables = {
      questions: tableUnder(page, '## What to look at'),
      fields: tableUnder(page, '## Every field of `metrics.jsonl`'),
    };
    const awaited = [
      ...canonicalSet.flatMap(({ journal }) => journal),
      ...tables.questions.flatMap(([, , inJournal]) => codeIn(inJournal!)),
    ];
    up = await UpProcess.start(flags);
    await up.says(/step \d/);
    // Queues and actors are polled every few seconds, and evaluations take a while.
    await until(async () => {
      const lines = await journal(up);
      found = new Set(lines.flatMap((line) => Object.keys(line)));
      return awaited.every((name) => found.has(name)) || lines.length >= 60;
    });
    for (const service of services) pages.set(service, await scrape(up, service));
  });
  after(() => up[Symbol.asyncDispose]());

  for (const { meaning, exported, journal } of canonicalSet) {
    it(`both records have: ${meaning}`, () => {
      for (const { name, type, of, labels = {} } of exported) {
        const text = pages.get(processOf[of])!;
        assert.equal(typesIn(text).get(name), type, name);
        const series = parseExposition(text).filter(({ metric }) => metric === name);
        assert(series.length > 0, `${of} has no series of ${name}`);
        for (const [label, values] of Object.entries(labels)) {
          const there = new Set(series.map(({ labels }) => labels[label]));
          assert.deepEqual(missing(values, there), [], `${name}{${label}}`);
        }
      }
      assert.deepEqual(missing(journal, found), []);
    });
  }

  it('a run exports the metric names that the project began with', () => {
    assert.deepEqual(missing(namesOfTheSeed, found), []);
  });

  it('every process exports its event loop lag', () => {
    for (const [service, text] of pages) {
      assert.deepEqual(missing(eventLoop.exported, new Set(typesIn(text).keys())), [], service);
    }
    assert.deepEqual(missing(eventLoop.journal, found), []);
  });

  it('a run exports every metric and field of the page on metrics', () => {
    const { questions, fields } = tables;
    const exported = new Set(
      [...pages.values()].flatMap(parseExposition).map(({ metric }) => metric),
    );
    // This run trains on rollouts, which its actors sample themselves.
    const isOfThisRun = (name: string) =>
      !/^(rl_sft_|sft\/|rl_actor_engine_|rl_actor_rollouts_cut_)/.test(name);
    const promised = questions.flatMap(([, inPrometheus]) => codeIn(inPrometheus!));
    assert.deepEqual(missing(promised.filter(isOfThisRun), exported), []);
    const named = questions.flatMap(([, , inJournal]) => codeIn(inJournal!)).filter(isOfThisRun);
    assert.deepEqual(missing(named, found), []);

    const documented = fields.map(([field]) => patternOf(codeIn(field!)));
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

  it('no label distinguishes problems, tickets, runs or processes', () => {
    for (const [service, text] of pages) assertBounded(service, parseExposition(text));
  });
});

function missing(names: readonly string[], there: ReadonlySet<string | undefined>): string[] {
  return names.filter((name) => !there.has(name));
}

async function journal(up: UpProcess): Promise<Record<string, unknown>[]> {
  const text = await up.read('metrics.jsonl').catch(() => '');
  const complete = text.slice(0, text.lastIndexOf('\n') + 1);
  return complete
    .split('\n')
    .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Record<string, unknown>]));
}

async function scrape(up: UpProcess, service: string): Promise<string> {
  const log = await up.read(`logs/${service}.log`);
  const [, port] = /"healthPort":(\d+)/.exec(log)!;
  const response = await fetch(`http://127.0.0.1:${port}/metrics`);
  return await response.text();
}

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

/** Matches `a/<b>` and `c`: a name in brackets stands for any text between slashes. */
function patternOf(names: readonly string[]): RegExp {
  const alternatives = names.map((name) =>
    name
      .split(/<[^>]+>/)
      .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
      .join('[^/]+'),
  );
  return new RegExp(`^(${alternatives.join('|')})$`);
}

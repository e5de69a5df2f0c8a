import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { canonicalSet, eventLoop, namesOfTheSeed } from '../support/canonical-metrics.js';
import {
  codeIn,
  declaredMetrics,
  metricsPage,
  services,
  tableUnder,
  updatedPage,
  type DeclaredMetric,
} from './metrics-table.js';
import { sourceTexts } from './sources.js';

describe('the page on metrics', async () => {
  const page = await readFile(metricsPage, 'utf8');
  const declaredBy = await Promise.all(services.map(declaredMetrics));
  const declared = declaredBy.flat();

  it('the page on metrics has every declared metric with its type, labels and help', async () => {
    assert.equal(await updatedPage(page), page, 'run `npm run docs` and commit docs/metrics.md');
  });

  it('the first table of the page on metrics names only declared metrics', () => {
    const names = new Set(declared.map(({ name }) => name));
    const asked = tableUnder(page, '## What to look at').flatMap(([, cell]) => codeIn(cell!));
    const ofNode = (name: string) => name.startsWith('nodejs_'); // exported by prom-client at run time
    assert.deepEqual(
      asked.filter((name) => !names.has(name) && !ofNode(name)),
      [],
    );
  });

  const labelRows = tableUnder(page, '## Values of the labels').map((cells) => cells.map(codeIn));

  it('the table of labels has every label of every metric once', () => {
    const listed = labelRows.flatMap(([label, names]) =>
      names!.map((name) => `${label![0]!} of ${name}`),
    );
    const expected = declared.flatMap(({ name, labels }) =>
      labels.map((label) => `${label} of ${name}`),
    );
    assert.deepEqual(listed.toSorted(), [...new Set(expected)].toSorted());
  });

  it('the table of labels names only values that the sources have', async () => {
    const sources = await sourceTexts([...services, 'shared']);
    const texts = sources.map((text) => text.replace(/\/\*[^]*?\*\/|\/\/.*$/gm, '')); // without comments
    const isWord = (value: string) => /^[\w.]+$/.test(value); // others are composed, as `pass@K`
    const values = new Set(labelRows.flatMap(([, , named]) => named!.filter(isWord)));
    assert(values.size > 100, String(values.size));
    // As a text, or as the name of a property.
    const isKnown = (value: string) => {
      const name = value.replaceAll('.', '\\.');
      const literal = new RegExp(`['"\`.]${name}['"\`]|\\b${name}[:,]|\\.${name}\\b`);
      return texts.some((text) => literal.test(text));
    };
    assert.deepEqual(
      [...values].filter((value) => !isKnown(value)),
      [],
    );
  });

  for (const { meaning, exported } of canonicalSet) {
    it(`the code declares the canonical metric: ${meaning}`, () => {
      for (const { name, type, of, labels = {} } of exported) {
        const metric = declaredBy[services.indexOf(of)]!.find((other) => other.name === name);
        assert.deepEqual(
          { name: metric?.name, type: metric?.type, labels: metric?.labels.toSorted() },
          { name, type, labels: Object.keys(labels).toSorted() },
          `${of}: ${name}`,
        );
      }
    });
  }

  it('the first table of the page on metrics has the whole canonical set', () => {
    const questions = tableUnder(page, '## What to look at');
    const shown = new Set(questions.flatMap((cells) => cells.flatMap(codeIn)));
    const names = canonicalSet.flatMap(({ exported }) => exported.map(({ name }) => name));
    assert.deepEqual(
      [...names, ...namesOfTheSeed, ...eventLoop.shown].filter((name) => !shown.has(name)),
      [],
    );
  });

  const rules: [rule: string, holds: (metric: DeclaredMetric) => boolean][] = [
    [
      'has the prefix of its service',
      ({ name }) => /^(rl|broker|reward_service|local_backend)_[a-z_]+$/.test(name),
    ],
    ['ends in _total if and only if it counts', isTotalIfCounter],
    [
      'is in base units',
      ({ name }) => !/_(ms|millis|micros|minutes|hours|kb|mb|percent)\b/.test(name),
    ],
    [
      'has a sentence as its help',
      ({ help }) => /^[A-Z][^]*[^.]\.$/.test(help) && help.length > 20,
    ],
    [
      'has only labels with few values',
      ({ labels }) => labels.every((label) => bounded.has(label)),
    ],
    ['has the same meaning in every service', isSameEverywhere],
  ];
  for (const [rule, holds] of rules) {
    it(`every metric ${rule}`, () => {
      assert.deepEqual(
        declared.filter((metric) => !holds(metric)).map(({ name }) => name),
        [],
      );
    });
  }

  function isSameEverywhere(metric: DeclaredMetric): boolean {
    return declared
      .filter(({ name }) => name === metric.name)
      .every(({ help, type }) => help === metric.help && type === metric.type);
  }
});

function isTotalIfCounter({ name, type }: DeclaredMetric): boolean {
  return name.endsWith('_total') === (type === 'counter');
}

/** Labels with a handful of values, never a problem, a ticket, an actor or a run. */
const bounded = new Set([
  ...['basis', 'cause', 'component', 'consumer', 'difficulty', 'estimator', 'kind', 'metric'],
  ...['engine', 'release', 'outage'], // of the servers of one actor
  ...['operation', 'outcome', 'phase', 'queue', 'reason', 'route', 'side', 'source', 'split'],
  ...['part', 'role', 'stage', 'staleness', 'state', 'status', 'stream', 'use'],
]);

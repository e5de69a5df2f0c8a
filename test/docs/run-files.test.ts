import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { Launch } from '../../cli/up/resume.js';
import { Summary } from '../../cli/up/summary.js';
import { noSteps } from '../../learner/report/history.js';
import { evalsJournal } from '../../learner/report/journal.js';
import { summarize } from '../../learner/report/summary.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { EvalResult } from '../../shared/wire/eval-result.js';
import { Checkpoint } from '../../shared/wire/ledger.js';
import { RunEvent } from '../../shared/wire/run-event.js';
import { evalResult } from '../support/messages.js';
import { codeIn, tableUnder } from './metrics-table.js';

const read = (name: string) => readFile(join(packageRoot, name), 'utf8');

describe('the page on the files of a run', async () => {
  const page = await read('docs/run-files.md');
  const listedUnder = (heading: string) =>
    tableUnder(page, heading).flatMap(([cell]) => codeIn(cell!));

  it('the page on the files of a run has every file that the quick start names', async () => {
    const [, afterHead] = (await read('docs/quick-start.md')).split(/^\| file /m);
    const [table] = afterHead!.split('\n\n');
    const named = [...table!.matchAll(/^\| `([^`]+)`/gm)].map(([, name]) => name!);
    assert(named.length >= 10);
    const listed = listedUnder('## The folder of a run');
    assert.deepEqual(
      named.filter((name) => !listed.includes(name)),
      [],
    );
  });

  it('the page on the files of a run has every field of summary.json', () => {
    const fields = [...fieldsOf(Summary), ...fieldsIn(fullSummary())];
    assertLists(listedUnder('## `summary.json`'), fields);
  });

  it('the page on the files of a run has every field of evals.jsonl', () => {
    const result = evalResult();
    const entry = evalsJournal.entryOf({ v: 1, at: 0, kind: 'eval', result });
    const added = Object.keys(entry).filter((name) => !(name in result));
    assertLists(listedUnder('## `evals.jsonl`'), [...added, ...fieldsOf(EvalResult)]);
  });

  it('the page on the files of a run has every field of config.json', () => {
    const ofTask = ['task.dataset', 'task.prompt', 'task.reward']; // each task has others
    const fields = wholeObjects(fieldsOf(RunConfig), ofTask);
    assertLists(listedUnder('## `config.json`'), fields);
  });

  it('the page on the files of a run has every field of launch.json', () => {
    const fields = wholeObjects(fieldsOf(Launch), ['launcher', 'settings']);
    assertLists(listedUnder('## `launch.json`'), fields);
  });

  it('the page on the files of a run has every field of checkpoint.json', () => {
    const fields = fieldsOf(Checkpoint).map((name) => `checkpoint.${name}`);
    assertLists(listedUnder('## `checkpoint.json`'), ['v', 'run', ...fields]);
  });

  it('the page on the files of a run says when each kind of event is emitted', () => {
    const kinds = RunEvent.options.map(({ shape }) => shape.kind.value);
    assert.deepEqual(listedUnder('## The events of a run').toSorted(), kinds.toSorted());
  });

  it('the page on the files of a run has every field of every kind of event', () => {
    const rows = tableUnder(page, '## The fields of each event');
    const of = (kind: string) =>
      rows.filter(([cell]) => cell === kind).flatMap(([, field]) => codeIn(field!));
    const ofEvery = of('every');
    let listed = ofEvery.length;
    for (const { shape } of RunEvent.options) {
      const kind = shape.kind.value;
      const own = of(`\`${kind}\``);
      assert.deepEqual([...ofEvery, ...own].toSorted(), Object.keys(shape).toSorted(), kind);
      listed += own.length;
    }
    assert.equal(listed, rows.length); // no row of another kind
  });
});

/** A summary with every field that a learner may write. */
function fullSummary(): Record<string, unknown> {
  const held = { sampler: 1, trainer: 1, reward: 1 };
  return summarize({
    run: 'r',
    reason: 'diverged',
    divergence: { step: 3, reason: 'KL', checkpointStep: 2, cause: 'actor' },
    noSignalStreak: { groups: 9, reward: 0 },
    from: 'other@3',
    version: 3,
    wallSeconds: 1,
    groups: { issued: 1, trained: 1, skippedZeroVariance: 0, stale: 0, dead: 0, outstanding: 0 },
    totals: noSteps,
    supervised: { examples: 1, leftOut: 1, epochs: 1, nll: 1, heldOutNll: 1 },
    bill: {
      tokens: {
        ...{ sampled: 9, trained: 4, evaluated: 2, inFlight: 1, wasted: 2, wastedBy: { stale: 2 } },
        ...{ masked: 0, undone: 0, prompts: 7, examples: 1 },
      },
      heldSeconds: held,
      gpuSeconds: held,
      money: { total: 1 },
    },
    before: evalResult(),
    after: evalResult(),
  });
}

interface JsonSchema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly additionalProperties?: JsonSchema | boolean;
  readonly items?: JsonSchema | boolean;
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
}

/** The paths of a schema's fields: `groups.issued`, `states[].step`, and `passAt.*` for the keys of a record. */
function fieldsOf(schema: z.ZodType): string[] {
  const json: unknown = z.toJSONSchema(schema, { io: 'output', unrepresentable: 'any' });
  return [...new Set(pathsOf(json as JsonSchema, ''))];
}

function pathsOf(schema: JsonSchema, path: string): string[] {
  const { properties, additionalProperties, items, anyOf = [], oneOf = [] } = schema;
  const options = [...anyOf, ...oneOf].filter(({ type }) => type !== 'null');
  if (options.length > 0) return options.flatMap((option) => pathsOf(option, path));
  if (properties !== undefined) {
    return Object.entries(properties).flatMap(([name, part]) => pathsOf(part, inside(path, name)));
  }
  if (typeof additionalProperties === 'object') {
    return pathsOf(additionalProperties, inside(path, '*'));
  }
  if (typeof items !== 'object') return [path];
  const ofItem = `${path}[]`;
  // A list of numbers or texts is one field.
  return pathsOf(items, ofItem).map((found) => (found === ofItem ? path : found));
}

/** The paths of a value's fields, without those of lists. */
function fieldsIn(value: unknown, path = ''): string[] {
  if (typeof value !== 'object' || value === null) return [path];
  const entries = Object.entries(value as Readonly<Record<string, unknown>>);
  return entries.flatMap(([name, part]) => fieldsIn(part, inside(path, name)));
}

function inside(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}

/** The fields, but each of these objects as one. */
function wholeObjects(fields: readonly string[], objects: readonly string[]): string[] {
  const objectOf = (field: string) => objects.find((name) => `${field}.`.startsWith(`${name}.`));
  return [...new Set(fields.map((field) => objectOf(field) ?? field))];
}

/** Asserts that the names are those of the fields, each once; `<role>` in a name stands for any key. */
function assertLists(names: readonly string[], fields: readonly string[]): void {
  const patterns = names.map((name) => ({ name, pattern: patternOf(name) }));
  const missing = fields.filter((field) => !patterns.some(({ pattern }) => pattern.test(field)));
  const unknown = patterns.filter(({ pattern }) => !fields.some((field) => pattern.test(field)));
  assert.deepEqual(missing, [], 'fields that the page lacks');
  assert.deepEqual(
    unknown.map(({ name }) => name),
    [],
    'names of the page that are no fields',
  );
  assert.equal(new Set(names).size, names.length);
}

function patternOf(name: string): RegExp {
  const parts = name.split(/<\w+>/).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${parts.join('[^.]+')}$`);
}

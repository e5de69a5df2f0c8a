import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { describe, it } from 'node:test';
import { UserError } from '../../shared/base/errors.js';
import { runSuite } from './run-suite.js';
import { atMost, failureOf, type Suite } from './suite.js';
import { hasPassed, table } from './table.js';

const run = (body: Suite['run']) =>
  runSuite(
    { name: 'parity', proves: 'that it agrees', run: body },
    {
      python: 'python3',
      isShort: false,
      signal: new AbortController().signal,
      note: () => undefined,
      now: () => 0,
    },
  );

describe('a compatibility suite', () => {
  it('a compatibility suite passes if all its checks pass, and its folder is deleted', async () => {
    let folder = '';
    const outcome = await run(async (context) => {
      ({ folder } = context);
      assert(existsSync(folder));
      context.report(atMost('logits', 2e-6, 1e-4));
      await context.step('a conflict', '409', () => 409);
    });
    assert(hasPassed(outcome));
    assert(!existsSync(folder));
    assert.deepEqual(table([outcome]).split('\n'), [
      'suite   check       value   bound     result',
      '--------------------------------------------',
      'parity  logits      2.0e-6  ≤ 0.0001  ok',
      'parity  a conflict  409     409       ok',
      '',
    ]);
  });

  it('a compatibility suite fails if one check fails or one step throws, and continues with the next', async () => {
    const outcome = await run(async (context) => {
      context.report(atMost('logits', 1, 1e-4));
      await context.step('a conflict', '409', () => {
        throw new Error('it was 200');
      });
      context.report(atMost('losses', 0, 1e-4));
    });
    assert(!hasPassed(outcome));
    assert.deepEqual(
      outcome.checks.map(({ value, passed }) => [value, passed]),
      [
        [1, false],
        ['it was 200', false],
        [0, true],
      ],
    );
  });

  it('a compatibility suite fails if it throws or reports no check', async () => {
    const broken = await run(() => Promise.reject(new Error('no server\nsecond line')));
    assert(!hasPassed(broken));
    assert.match(table([broken]), /^parity {2}no server .* FAILED$/m);
    assert(!hasPassed(await run(() => Promise.resolve())));
  });

  it('a compatibility suite that the machine cannot run is skipped, which is no failure', async () => {
    const outcome = await run(() => Promise.reject(new UserError('no python3')));
    assert(hasPassed(outcome));
    assert.match(table([outcome]), /^parity {2}no python3 .* skipped$/m);
  });

  it('a Python program that failed is summarized by its exception, and then its first and its last tracebacks', () => {
    const traceback = 'Traceback (most recent call last):';
    const middle = Array.from({ length: 100 }, (_, line) => `  line ${line}`);
    const written = [
      'a warning',
      traceback,
      'KeyError: the cause',
      ...middle,
      'TypeError: later',
      '',
    ];
    const summary = failureOf(written).split('\n');
    assert.deepEqual(summary.slice(0, 3), ['TypeError: later', traceback, 'KeyError: the cause']);
    assert.equal(summary[31], '… 44 lines …');
    assert.deepEqual(summary.slice(-2), ['TypeError: later', '']);
    assert.equal(summary.length, 62);
    assert.equal(failureOf([]), 'it wrote no error');
  });
});

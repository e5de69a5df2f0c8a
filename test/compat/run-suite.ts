import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { errorText, UserError } from '../../shared/base/errors.js';
import type { Check, Suite, SuiteContext } from './suite.js';
import type { Outcome } from './table.js';

export interface RunSuiteOptions extends Pick<SuiteContext, 'python' | 'isShort' | 'note'> {
  readonly signal: AbortSignal;
  readonly now: () => number; // in ms
}

/** Runs a suite to its end, within its time, and never throws. */
export async function runSuite(suite: Suite, options: RunSuiteOptions): Promise<Outcome> {
  const { python, isShort, note, now } = options;
  const limitMinutes = suite.limitMinutes ?? 10;
  const limit = AbortSignal.timeout(limitMinutes * 60_000);
  const signal = AbortSignal.any([options.signal, limit]);
  const folder = await mkdtemp(join(tmpdir(), `offbeat-${suite.name}-`));
  const startedAt = now();

  const checks: Check[] = [];
  const report = (check: Check) => {
    checks.push(check);
    note(`  ${check.passed ? 'ok    ' : 'FAILED'} ${check.check}: ${check.value} (${check.bound})`);
  };
  const step: SuiteContext['step'] = async (check, bound, run) => {
    try {
      report({ check, value: await run(), bound, passed: true });
    } catch (caught) {
      if (signal.aborted) throw caught;
      note(`  ${caught instanceof Error ? (caught.stack ?? caught.message) : String(caught)}`);
      report({ check, value: firstLine(errorText(caught)), bound, passed: false });
    }
  };

  note(`${suite.name}: ${suite.proves}`);
  try {
    await suite.run({ python, folder, isShort, signal, report, step, note });
    if (checks.length === 0) throw new Error('it reported no check');
    note(`  took ${((now() - startedAt) / 1000).toFixed(0)} s`);
    return { suite: suite.name, checks };
  } catch (caught) {
    const kind = caught instanceof UserError ? 'skipped' : 'failed';
    const message = limit.aborted ? `not done after ${limitMinutes} min` : errorText(caught);
    note(`  ${kind}: ${message}`);
    return { suite: suite.name, checks, problem: { kind, message } };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0]!.slice(0, 120);
}

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';

/** One statement about real third parties, with the figure that shows it. */
export const Check = z.object({
  check: z.string().min(1),
  value: z.union([z.string(), z.number()]),
  bound: z.string(), // the required value: `≤ 1e-4`, `409`
  passed: z.boolean(),
});
export type Check = z.infer<typeof Check>;

export interface SuiteContext {
  /** An interpreter with the packages of tools/tuft-cpu/requirements.txt and test/compat/requirements.txt. */
  readonly python: string;
  /** A temporary folder, deleted afterwards. */
  readonly folder: string;
  /** Whether to omit checks that take minutes. */
  readonly isShort: boolean;
  /** Aborts when the suite has used up its time, or on Ctrl-C. */
  readonly signal: AbortSignal;
  /** Reports a check, as soon as it is known. */
  readonly report: (check: Check) => void;
  /** Runs one step, which passes unless it throws; its result is shown as the value. */
  readonly step: (
    check: string,
    bound: string,
    run: () => Promise<string | number> | string | number,
  ) => Promise<void>;
  /** Prints a progress note at once; it is not part of the table. */
  readonly note: (line: string) => void;
}

/**
 * A program that tests against real third parties. It fails if one of its checks failed, if it reported none, or
 * if it throws. A UserError means that this machine cannot run it: it is skipped.
 */
export interface Suite {
  readonly name: string;
  readonly proves: string;
  readonly run: (context: SuiteContext) => Promise<void>;
  /** Whether it needs the Python environment; true by default. */
  readonly needsPython?: boolean;
  /** The time limit; exceeding it is a failure. 10 by default. */
  readonly limitMinutes?: number;
}

/** A value that must not exceed a limit. */
export function atMost(check: string, value: number, limit: number): Check {
  return { check, value, bound: `≤ ${limit}`, passed: value <= limit };
}

/** A value that must reach a limit. */
export function atLeast(check: string, value: number, limit: number): Check {
  return { check, value, bound: `≥ ${limit}`, passed: value >= limit };
}

/**
 * Runs a Python program of test/compat in the environment. Each line of its standard output that is
 * a JSON object is a check (`{"check", "value", "bound", "passed"}`), the others are notes.
 *
 * @throws if it does not end with 0; the message has the exception and its tracebacks.
 */
export async function runPython(
  context: SuiteContext,
  file: string,
  args: readonly string[] = [],
  env: NodeJS.ProcessEnv = {},
): Promise<void> {
  const child = spawn(context.python, [`${compatFolder}${file}`, ...args], {
    cwd: context.folder,
    env: { ...process.env, PYTHONUNBUFFERED: '1', PYTHONDONTWRITEBYTECODE: '1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    signal: context.signal,
  });
  const errors: string[] = [];
  createInterface(child.stderr).on('line', (line) => errors.push(line));
  createInterface(child.stdout).on('line', (line) => {
    if (line.startsWith('{')) context.report(Check.parse(JSON.parse(line)));
    else context.note(line);
  });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) {
    throw new Error(`${file} ended with ${code ?? 'a signal'}: ${failureOf(errors)}`);
  }
}

const shownLines = 60;

/**
 * Summarizes what a Python program wrote to standard error: its last line, which names the exception, and then
 * everything from the first traceback on. The middle of a long text is left out; both ends matter, since the first
 * of several tracebacks is the cause of the others.
 */
export function failureOf(lines: readonly string[]): string {
  const last = lines.findLast((line) => line.trim() !== '') ?? 'it wrote no error';
  const cause = lines.findIndex((line) => line.includes('Traceback (most recent call last)'));
  const from = cause === -1 ? lines.slice(-shownLines) : lines.slice(cause);
  const left = from.length - shownLines;
  const shown =
    left <= 0
      ? from
      : [...from.slice(0, shownLines / 2), `… ${left} lines …`, ...from.slice(-shownLines / 2)];
  return [last, ...shown].join('\n');
}

/** The sources of these tests: Python is not compiled into dist/. */
export const compatFolder = fileURLToPath(new URL('../../../test/compat/', import.meta.url));

import type { Finding } from './finding.js';

const marks: Readonly<Record<Finding['level'], string>> = {
  ok: 'ok     ',
  warning: 'warning',
  error: 'ERROR  ',
  skipped: 'skipped',
};

/** `warning  files: a process may open 256 files`, and beneath it what to do. */
export function findingText({ check, level, found, remedy }: Finding): string {
  const first = `${marks[level]}  ${check}: ${found}\n`;
  return remedy === undefined ? first : `${first}         → ${remedy}\n`;
}

/** The last line: whether a training can begin. */
export function verdictText(findings: readonly Finding[]): string {
  const count = (level: Finding['level']) => findings.filter((each) => each.level === level).length;
  const [errors, warnings] = [count('error'), count('warning')];
  const minor = warnings === 0 ? '' : `, ${plural(warnings, 'warning')}`;
  return errors === 0
    ? `\nnothing stands in the way${minor}\n`
    : `\n${plural(errors, 'error')}${minor}: what the arrows say comes first\n`;
}

function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? '' : 's'}`;
}

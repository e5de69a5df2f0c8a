import { readdirSync, readFileSync } from 'node:fs';

/** Whether a process still runs; one that has ended and waits to be buried does not. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  return processState(pid) !== 'Z';
}

/** Process ids of those whose command line contains one of `parts`, ourselves excluded. Linux only. */
export function processesWith(...parts: readonly string[]): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && pid !== process.pid)
    .filter((pid) => {
      const line = read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ');
      return parts.some((part) => line.includes(part)) && processState(pid) !== 'Z';
    });
}

/** R, S, Z and so on, as /proc says; undefined where there is none. */
function processState(pid: number): string | undefined {
  return /^\d+ \(.*\) (\w)/s.exec(read(`/proc/${pid}/stat`))?.[1];
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

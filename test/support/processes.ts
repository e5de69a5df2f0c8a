import { readdirSync, readFileSync } from 'node:fs';

/** Whether a process still runs; a zombie does not. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  return processState(pid) !== 'Z';
}

/** Ids of other processes whose command line contains one of `parts`. Linux only. */
export function processesWith(...parts: readonly string[]): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && pid !== process.pid)
    .filter((pid) => {
      const line = read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ');
      return parts.some((part) => line.includes(part)) && processState(pid) !== 'Z';
    });
}

/** The state in /proc: R, S, Z and so on; undefined if there is no such process. */
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

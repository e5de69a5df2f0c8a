import { remedies, type Trouble } from './remedies.js';

/** What one check found out. */
export interface Finding {
  readonly check: string;
  /** A warning is no obstacle, an error is; skipped: it could not be looked at. */
  readonly level: 'ok' | 'warning' | 'error' | 'skipped';
  readonly found: string;
  readonly remedy?: string; // always, but where all is well
}

export function ok(check: string, found: string): Finding {
  return { check, level: 'ok', found };
}

export function finding(
  check: string,
  level: Exclude<Finding['level'], 'ok'>,
  found: string,
  trouble: Trouble,
): Finding {
  return { check, level, found, remedy: remedies[trouble] };
}

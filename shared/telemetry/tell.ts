import { withoutSecrets } from './secrets.js';

/** Writes a line for the user to standard error. */
export function tell(line: string): void {
  process.stderr.write(`${withoutSecrets(line)}\n`);
}

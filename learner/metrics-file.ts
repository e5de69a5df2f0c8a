import { appendFile, mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { StepEvent } from './history.js';

/** The run's `metrics.jsonl`: one line a step. It is a view of the step events, made anew from them. */
export class MetricsFile {
  readonly #path: string;

  private constructor(path: string) {
    this.#path = path;
  }

  /** Writes the steps that the weights have behind them; those that a crash undid are gone. */
  static async open(runDir: string, steps: readonly StepEvent[]): Promise<MetricsFile> {
    await mkdir(runDir, { recursive: true });
    const path = join(runDir, 'metrics.jsonl');
    const partial = `${path}.partial`;
    await writeFile(partial, steps.map(line).join(''));
    await rename(partial, path);
    return new MetricsFile(path);
  }

  async append(step: StepEvent): Promise<void> {
    await appendFile(this.#path, line(step));
  }
}

function line({ step, version, at, metrics }: StepEvent): string {
  return `${JSON.stringify({ step, version, time: new Date(at).toISOString(), ...metrics })}\n`;
}

import { SweepFile, type Sweep } from '../../../tools/sweep/sweep-file.js';
import type { RunResult } from '../../../tools/sweep/results.js';
import { evalResult } from '../../support/messages.js';

/** An experiment over lag 0 and 4 with and without correction; lag 0 needs none. */
export const sweepJson = {
  name: 'staleness',
  title: 'How stale may data be?',
  about: ['A paragraph.'],
  settings: { groupSize: 4, loraRank: 8 },
  axes: [
    { name: 'lag', setting: 'maxStepsOffPolicy', values: [0, 4] },
    {
      name: 'correction',
      values: [
        { label: 'cispo', settings: { loss: 'cispo' } },
        { label: 'none', settings: { loss: 'cross_entropy', allowUncorrected: true } },
      ],
    },
  ],
  skip: [{ lag: 0, correction: 'none' }],
  seeds: [0, 1],
  limits: { samples: 64 },
  evaluation: { problems: 4, samples: 2, everySamples: 32 },
  measures: [
    { name: 'solved', from: 'eval', key: 'sampled' },
    { name: 'entropy', from: 'steps', key: 'entropy', take: 'end' },
  ],
  comparisons: [{ measure: 'solved', against: { lag: 0, correction: 'cispo' }, margin: 0.01 }],
  panels: [
    { kind: 'curve', title: 'Solved', from: 'eval', key: 'sampled', color: 'lag' },
    { kind: 'end', title: 'In the end', measure: 'solved', x: 'lag', color: 'correction' },
  ],
  short: { axes: { lag: [4] }, seeds: [7], limits: { steps: 2 } },
};

export function sweepOf(over: object = {}): Sweep {
  return SweepFile.parse({ ...sweepJson, ...over });
}

/** Right answers, of two, to each of four problems at the last evaluation. */
export function runResult(
  choice: Record<string, string>,
  seed: number,
  correct: readonly number[],
  over: Partial<RunResult> = {},
): RunResult {
  const sampled = { correct: [...correct], total: correct.map(() => 2) };
  const answers = {
    sampled,
    greedy: { correct: correct.map(() => 1), total: correct.map(() => 1) },
  };
  const share = correct.reduce((sum, right) => sum + right, 0) / (2 * correct.length);
  return {
    v: 2,
    name: `${Object.values(choice).join('-')}-s${seed}`,
    choice,
    seed,
    settings: {},
    samplesPerStep: 16,
    modelDigest: 'a0b1',
    reason: 'max_steps',
    seconds: 60,
    finishedAt: '2026-01-01T00:00:00.000Z',
    machine: 'a machine',
    summary: { version: 4 },
    evals: [
      evalResult({ version: 0, sampled: 0.25 }),
      evalResult({ version: 4, sampled: share, answers }),
    ],
    furtherEvals: {},
    furtherSettings: {},
    steps: [1, 2, 3, 4].map((step) => ({ step, version: step, entropy: 1 / step })),
    ...over,
  };
}

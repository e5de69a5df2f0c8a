import { embeddedDataset } from '../../shared/countdown/embedded-dataset.js';
import { generateProblems } from '../../shared/countdown/generator.js';
import { scoreAnswer, zeroOrOne } from '../../shared/countdown/score.js';
import type { Figure } from './main.js';
import { medianSeconds } from './stopwatch.js';

/** How fast one core scores: right answers, wrong ones, and the slowest of some hostile ones. */
export async function benchReward(): Promise<Figure[]> {
  const solved = generateProblems(embeddedDataset).slice(0, 5_000);
  const reward = { ...zeroOrOne, formatScore: 0.1, shaping: 'continuous' } as const;
  const seconds = await medianSeconds(5, () => {
    for (const [i, { problem, witness }] of solved.entries()) {
      scoreAnswer('compact', problem, i % 2 === 0 ? witness : `${witness}+1`, reward);
    }
  });

  const { problem } = solved[0]!;
  const hostile = [
    '('.repeat(50_000),
    '99**98**97',
    '1'.repeat(100_000),
    '-'.repeat(100_000),
    '1/'.repeat(50_000),
    '<answer>'.repeat(100_000),
    ' '.repeat(1_000_000),
  ];
  const slowest: number[] = [];
  for (const answer of hostile) {
    slowest.push(
      await medianSeconds(5, () => {
        scoreAnswer('compact', problem, answer, reward);
      }),
    );
  }
  return [
    { what: 'answers scored, half of them wrong', value: 5_000 / seconds, unit: 'scores/s' },
    {
      what: 'slowest of the hostile answers',
      value: Math.max(...slowest) * 1_000,
      unit: 'ms',
    },
  ];
}

import { answerForm } from '../../shared/tasks/countdown/score.js';
import { styles } from '../../shared/tasks/countdown/prompts.js';
import type { CountdownSpec, RewardSpec } from '../../shared/tasks/countdown/spec.js';

/** The answer place of each style. */
export const forms = {
  compact: answerForm(styles.compact.en),
  fewshot: answerForm(styles.fewshot.en),
  think: answerForm(styles.think.en),
};

/** A valid Countdown configuration of a run, except for the fields that a test sets. */
export function countdownSpec(over: Partial<CountdownSpec> = {}): CountdownSpec {
  return {
    name: 'countdown',
    dataset: {
      kind: 'generator',
      seed: 1,
      numbers: [3],
      maxNumber: 20,
      maxTarget: 99,
      trainSize: 10,
      testSize: 5,
    },
    prompt: styles.compact.en,
    reward: { ...zeroOrOne, formatScore: 0.1 },
    ...over,
  };
}

/** Rewards of 1 for the exact target with every number, else 0. */
export const zeroOrOne: RewardSpec = {
  formatScore: 0,
  shaping: 'none',
  numbersToUse: 'all',
  targetTail: 'by_style',
};

import { z } from 'zod';
import { chooseTemplate, type PromptLanguage } from '../tasks/prompt-template.js';
import { embeddedDataset } from './embedded-dataset.js';
import { styles } from './prompts.js';
import { CountdownPrompt, type CountdownSpec } from './spec.js';

const whole = z.coerce.number().int();

/** The learner's settings that only Countdown has. */
export const countdownSettings = {
  numbers: z
    .string()
    .regex(/^\d+(,\d+)*$/, 'expected numbers separated by commas, as in 3,4')
    .default(embeddedDataset.numbers.join(','))
    .describe('how many numbers a generated problem may have.'),
  maxNumber: whole
    .positive()
    .default(embeddedDataset.maxNumber)
    .describe('the largest number of a generated problem.'),
  maxTarget: whole
    .positive()
    .default(embeddedDataset.maxTarget)
    .describe('the largest target of a generated problem.'),
  trainSize: whole
    .positive()
    .default(embeddedDataset.trainSize)
    .describe('generated problems to train on.'),
  formatScore: z.coerce
    .number()
    .min(0)
    .max(1)
    .default(0.1)
    .describe('reward of an answer in the right form that is not correct.'),
  shaping: z
    .enum(['none', 'constant', 'continuous'])
    .default('constant')
    .describe('none: reward 0 or 1 and nothing between.'),
  numbersToUse: z
    .enum(['all', 'some'])
    .default('all')
    .describe('some: an answer may leave numbers out, as in the classical game.'),
  targetTail: z
    .enum(['by_style', 'accept', 'refuse'])
    .default('by_style')
    .describe('whether an answer may end in "= 64", its target; by style: think only.'),
};

interface Settings extends z.infer<z.ZodObject<typeof countdownSettings>> {
  readonly dataset?: string | undefined;
  readonly testSize: number;
  readonly datasetSeed: number;
  readonly promptStyle?: string | undefined;
  readonly promptLanguage: PromptLanguage;
}

/** @throws {UserError} if the prompt style is not there. */
export async function countdownSpec(settings: Settings): Promise<CountdownSpec> {
  const { promptStyle = 'compact', promptLanguage } = settings;
  const { formatScore, shaping, numbersToUse, targetTail } = settings;
  return {
    name: 'countdown',
    dataset: datasetSpec(settings),
    prompt: await chooseTemplate(CountdownPrompt, styles, promptStyle, promptLanguage),
    reward: { formatScore, shaping, numbersToUse, targetTail },
  };
}

function datasetSpec(settings: Settings): CountdownSpec['dataset'] {
  const { dataset = 'generator', datasetSeed: seed, testSize } = settings;
  if (dataset !== 'generator') return { kind: 'jsonl', path: dataset, seed, testSize };
  const { maxNumber, maxTarget, trainSize } = settings;
  const numbers = settings.numbers.split(',').map(Number);
  return { kind: 'generator', seed, numbers, maxNumber, maxTarget, trainSize, testSize };
}

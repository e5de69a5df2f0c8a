import { z } from 'zod';
import { real, whole } from '../../service/config-fields.js';
import { chooseTemplate } from '../prompt-template.js';
import type { CommonSettings } from '../settings.js';
import { dataSpec } from '../data/data.js';
import { embeddedDataset } from './embedded-dataset.js';
import { styles } from './prompts.js';
import { CountdownPrompt, type CountdownSpec, type GeneratorSpec } from './spec.js';

/** What the generator makes by default: what the embedded model knows. */
const { numbers, maxNumber, maxTarget, trainSize } = embeddedDataset;

const generatorSettings = {
  numbers: z
    .string()
    .regex(/^[2-6](,[2-6])*$/, 'expected numbers from 2 to 6, separated by commas, as in 3,4')
    .optional()
    .describe(`how many numbers a generated problem may have; ${numbers.join(',')}.`),
  minNumber: whole.positive().optional().describe('the least number of a generated problem; 1.'),
  maxNumber: whole
    .positive()
    .optional()
    .describe(`the largest number of a generated problem; ${maxNumber}.`),
  minTarget: whole.positive().optional().describe('the least target of a generated problem; 1.'),
  maxTarget: whole
    .positive()
    .optional()
    .describe(`the largest target of a generated problem; ${maxTarget}.`),
  trainSize: whole.positive().optional().describe(`generated problems to train on; ${trainSize}.`),
};

/** The learner's settings that only Countdown has. */
export const countdownSettings = {
  ...generatorSettings,
  formatScore: real
    .min(0)
    .max(1)
    .optional()
    .describe('reward of an answer in the right form that is not correct; 0.1. For countdown.'),
  shaping: z
    .enum(['none', 'constant', 'continuous'])
    .optional()
    .describe('none: reward 0 or 1 and nothing between; constant. For countdown.'),
  numbersToUse: z
    .enum(['all', 'some'])
    .optional()
    .describe('some: an answer may leave numbers out, as in the classical game; all.'),
  targetTail: z
    .enum(['by_style', 'accept', 'refuse'])
    .optional()
    .describe(
      'whether an answer may end in "= 64", its target; by_style: where the prompt says so.',
    ),
};

type Settings = CommonSettings & z.infer<z.ZodObject<typeof countdownSettings>>;

/** What is wrong with settings that each are right. */
export function checkCountdown(
  settings: Settings,
  complain: (key: string, message: string) => void,
): void {
  if (tableOf(settings) === undefined) {
    const spec = generatorSpec(settings);
    if ((spec.minNumber ?? 1) > spec.maxNumber) complain('minNumber', 'it exceeds --max-number');
    if ((spec.minTarget ?? 1) > spec.maxTarget) complain('minTarget', 'it exceeds --max-target');
    return;
  }
  const given: Readonly<Record<string, unknown>> = settings;
  for (const key of Object.keys(generatorSettings).filter((key) => given[key] !== undefined)) {
    complain(key, 'it is about generated problems, and --dataset names others; remove one');
  }
}

/** @throws {UserError} if the data or the prompt style is not there. */
export async function countdownSpec(settings: Settings): Promise<CountdownSpec> {
  const { datasetSeed: seed, testSize, promptStyle, promptLanguage } = settings;
  const table = tableOf(settings);
  return {
    name: 'countdown',
    dataset:
      table === undefined ? generatorSpec(settings) : await dataSpec(table, { seed, testSize }),
    prompt: await chooseTemplate(CountdownPrompt, styles, promptStyle, promptLanguage),
    reward: {
      formatScore: settings.formatScore ?? 0.1,
      shaping: settings.shaping ?? 'constant',
      numbersToUse: settings.numbersToUse ?? 'all',
      targetTail: settings.targetTail ?? 'by_style',
    },
  };
}

/** The table that problems come from; undefined if they are generated. */
function tableOf({ dataset }: Settings): string | undefined {
  return dataset === 'generator' ? undefined : dataset;
}

function generatorSpec(settings: Settings): GeneratorSpec {
  const { minNumber, minTarget } = settings;
  return {
    kind: 'generator',
    seed: settings.datasetSeed,
    numbers: settings.numbers?.split(',').map(Number) ?? embeddedDataset.numbers,
    ...(minNumber !== undefined && { minNumber }),
    maxNumber: settings.maxNumber ?? maxNumber,
    ...(minTarget !== undefined && { minTarget }),
    maxTarget: settings.maxTarget ?? maxTarget,
    trainSize: settings.trainSize ?? trainSize,
    testSize: settings.testSize,
  };
}

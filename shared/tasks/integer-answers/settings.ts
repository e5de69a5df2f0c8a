import { z } from 'zod';
import { real } from '../../service/config-fields.js';
import { chooseTemplate } from '../prompt-template.js';
import type { CommonSettings } from '../settings.js';
import { dataOf } from '../data/data.js';
import { styles } from './prompts.js';
import { IntegerAnswersPrompt, type IntegerAnswersSpec } from './spec.js';

/** The learner's settings that only integer answers have. */
export const integerAnswersSettings = {
  formatPenalty: real
    .min(0)
    .max(1)
    .optional()
    .describe('what an answer loses that is not in the right form; 0.1. For integer-answers.'),
};

type Settings = CommonSettings & z.infer<z.ZodObject<typeof integerAnswersSettings>>;

/** @throws {UserError} if the data or the prompt style is not there. */
export async function integerAnswersSpec(settings: Settings): Promise<IntegerAnswersSpec> {
  const { promptStyle, promptLanguage } = settings;
  return {
    name: 'integer-answers',
    dataset: await dataOf(settings),
    prompt: await chooseTemplate(IntegerAnswersPrompt, styles, promptStyle, promptLanguage),
    reward: { formatPenalty: settings.formatPenalty ?? 0.1 },
  };
}

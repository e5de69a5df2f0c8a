import { z } from 'zod';
import { namesOnly, PromptTemplate } from '../prompt-template.js';
import { DataSpec } from '../data/data.js';

export const IntegerAnswersPrompt = PromptTemplate.check(namesOnly(['question']));

/** Integer answers as a run has them configured. */
export const IntegerAnswersSpec = z.strictObject({
  name: z.literal('integer-answers'),
  dataset: DataSpec,
  prompt: IntegerAnswersPrompt,
  reward: z.strictObject({
    formatPenalty: z.number().min(0).max(1), // what an answer loses that is not in the right form
  }),
});
export type IntegerAnswersSpec = z.infer<typeof IntegerAnswersSpec>;

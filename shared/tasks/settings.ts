import { z } from 'zod';
import { text, whole } from '../service/config-fields.js';
import { promptLanguages } from './prompt-template.js';

/** The learner's settings that every task has. */
export const CommonSettings = z.object({
  dataset: text
    .optional()
    .describe(
      'a file *.jsonl, *.csv or *.parquet, or OWNER/NAME on the Hugging Face hub; or generator, which ' +
        'countdown has and defaults to.',
    ),
  testSize: whole
    .positive()
    .default(1_024)
    .describe('problems held out for evaluation: the first ones.'),
  datasetSeed: whole
    .min(0)
    .default(0)
    .describe('of the generator, or of the order in a file; --seed leaves the problems alone.'),
  promptStyle: text
    .default('compact')
    .describe(
      'how a problem is put to the model: compact (all that the embedded model knows), fewshot, think, ' +
        'or a template file *.json of your own.',
    ),
  promptLanguage: z
    .enum(promptLanguages)
    .default('en')
    .describe('of the prompt; compact has no words.'),
});
export type CommonSettings = z.infer<typeof CommonSettings>;

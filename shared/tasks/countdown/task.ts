import { z } from 'zod';
import { kebab } from '../../service/config.js';
import { number, int, listOf } from '../../service/config-fields.js';
import { dataSpec, readData, sourceOf } from '../data/data.js';
import { datasetOf, splitRows, type Dataset } from '../dataset.js';
import { chooseTemplate } from '../prompt-template.js';
import { type CommonSettings, defineTask, type Task } from '../task.js';
import { answerForm, scoreAnswer } from './score.js';
import { embeddedDataset, generateProblems, type SolvedProblem } from './generator.js';
import { exampleRow, problemKey, problemOfRow, type Problem } from './problem.js';
import { CountdownPrompt, CountdownSpec, type GeneratorSpec } from './spec.js';
import { styles, questionReader, renderPrompt } from './prompts.js';
import { solutionText } from './solution.js';

const { numbers, maxNumber, minTarget, maxTarget, trainSize, rehearsal } = embeddedDataset;

const generatorSettings = {
  numbers: listOf(z.string())
    .regex(/^[2-6](,[2-6])*$/, 'expected numbers from 2 to 6, separated by commas, as in 3,4')
    .optional()
    .describe(
      `how many numbers a generated problem may have, separated by commas, such as 3,4; default ${numbers.join(',')}.`,
    ),
  minNumber: int
    .positive()
    .optional()
    .describe('the smallest number of a generated problem; default 1.'),
  maxNumber: int
    .positive()
    .optional()
    .describe(`the largest number of a generated problem; default ${maxNumber}.`),
  minTarget: int
    .positive()
    .optional()
    .describe(
      `the smallest target of a generated problem; default ${minTarget}, or 1 if --max-target is given.`,
    ),
  maxTarget: int
    .positive()
    .optional()
    .describe(`the largest target of a generated problem; default ${maxTarget}.`),
  trainSize: int
    .positive()
    .optional()
    .describe(`generated problems to train on; default ${trainSize}.`),
  rehearsalShare: number
    .min(0)
    .lt(1)
    .optional()
    .describe(
      `share of the training problems that are like those of the embedded model's pre-training, so that it does not forget them; default ${rehearsal.share}, or 0 if numbers or targets are chosen.`,
    ),
};

/** The learner's settings for Countdown only. */
const countdownSettings = {
  ...generatorSettings,
  formatScore: number
    .min(0)
    .max(1)
    .optional()
    .describe(
      'reward of an answer in the right form that is not correct; default 0.1. For countdown.',
    ),
  shaping: z
    .enum(['none', 'constant', 'continuous', 'random'])
    .optional()
    .describe(
      'reward of an answer that is not correct: none: 0; constant (default): --format-score for the right form; ' +
        'continuous: more the nearer its value; random: every reward is 0 or 1 by chance, a control. For countdown.',
    ),
  numbersToUse: z
    .enum(['all', 'some'])
    .optional()
    .describe(
      'all (default): each number once; some: numbers may be left out, as in the classical game. For countdown.',
    ),
  targetTail: z
    .enum(['by_style', 'accept', 'refuse'])
    .optional()
    .describe(
      'whether an answer may end in "= 64", its target; by_style (default): if the prompt style allows it.',
    ),
};

type Settings = CommonSettings & z.infer<z.ZodObject<typeof countdownSettings>>;

/** Reports invalid combinations of valid settings. */
function checkCountdown(
  settings: Settings,
  complain: (key: string, message: string) => void,
): void {
  if (tableOf(settings) === undefined) {
    const spec = generatorSpec(settings);
    for (const [least, most] of [
      ['minNumber', 'maxNumber'],
      ['minTarget', 'maxTarget'],
    ] as const) {
      const [low, high] = [spec[least] ?? 1, spec[most]];
      if (low > high) complain(least, `it exceeds --${kebab(most)}, which is ${high}`);
    }
    return;
  }
  const given: Readonly<Record<string, unknown>> = settings;
  for (const key of Object.keys(generatorSettings).filter((key) => given[key] !== undefined)) {
    complain(key, 'it applies to generated problems, but --dataset names a file; remove one');
  }
}

/** @throws {UserError} if the data or the prompt style does not exist. */
async function countdownSpec(settings: Settings): Promise<CountdownSpec> {
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

/** The table with the problems; undefined if they are generated. */
function tableOf({ dataset }: Settings): string | undefined {
  return dataset === 'generator' ? undefined : dataset;
}

function generatorSpec(settings: Settings): GeneratorSpec {
  const { minNumber } = settings;
  const isChosen = ['numbers', 'minNumber', 'maxNumber', 'minTarget', 'maxTarget'].some(
    (key) => settings[key as keyof Settings] !== undefined,
  );
  const share = settings.rehearsalShare ?? (isChosen ? 0 : rehearsal.share);
  return {
    kind: 'generator',
    seed: settings.datasetSeed,
    numbers: settings.numbers?.split(',').map(Number) ?? embeddedDataset.numbers,
    ...(minNumber !== undefined && { minNumber }),
    maxNumber: settings.maxNumber ?? maxNumber,
    minTarget: settings.minTarget ?? (settings.maxTarget === undefined ? minTarget : 1),
    maxTarget: settings.maxTarget ?? maxTarget,
    trainSize: settings.trainSize ?? trainSize,
    testSize: settings.testSize,
    ...(share > 0 && { rehearsal: { ...rehearsal, share } }),
  };
}

/** Countdown: reach a target from some numbers, each used once. */
export const countdown = defineTask({
  name: 'countdown',
  settings: countdownSettings,
  spec: CountdownSpec,
  check: checkCountdown,
  configure: countdownSpec,
  open: openCountdown,
});

function openCountdown({ dataset, prompt, reward }: CountdownSpec): Task<Problem> {
  const form = answerForm(prompt);
  return {
    load: () => loadDataset(dataset),
    questionOf: problemKey,
    questionIn: questionReader(prompt),
    prompt: (problem) => renderPrompt(prompt, problem),
    solution: (problem) => solutionText(prompt, problem, reward.numbersToUse),
    stop: prompt.stop,
    score: (problem, completion) => scoreAnswer(form, problem, completion, reward),
    problemOf: problemOfRow,
  };
}

/**
 * Holds out the first `testSize` problems. The remaining rows of a file are shuffled; generated problems
 * are already in random order.
 */
async function loadDataset(spec: CountdownSpec['dataset']): Promise<Dataset<Problem>> {
  if (spec.kind === 'generator') {
    const { test, train } = generateProblems(spec);
    const problems = (split: readonly SolvedProblem[]): Problem[] =>
      split.map(({ problem, witness }) => ({ ...problem, solution: witness }));
    return datasetOf('countdown', problems(test), problems(train));
  }
  const rows = await readData(spec, problemOfRow, exampleRow);
  return splitRows('countdown', rows, {
    ...spec,
    source: sourceOf(spec),
    questionOf: problemKey,
  });
}

import { z } from 'zod';
import { string, int } from '../service/config-fields.js';
import type { Score } from '../wire/scored-group.js';
import type { Dataset, TaskProblem } from './dataset.js';
import { promptLanguages } from './prompt-template.js';
import type { Prompt } from './prompt.js';

/**
 * A verifiable task as configured for a run: its problems, their prompts and the rewards of answers.
 * Learner, actors and reward service use tasks only through this interface.
 *
 * A problem passed to `prompt` or `score` must come from the same task's `load` or `problemOf`.
 */
export interface Task<Problem extends TaskProblem = TaskProblem> {
  /**
   * The problems, the same in every process that loads the same specification.
   *
   * @throws {UserError} if problems cannot be read or generated, with the remedy.
   */
  load(): Promise<Dataset<Problem>>;

  /** Equal for two problems that ask the same; by default their ids. */
  questionOf?(problem: Problem): string;

  /**
   * The question of a prompt that this task did not write, such as one in a file of examples, as `questionOf` names it.
   *
   * @param text a plain text, or a message of the user in a chat.
   * @returns undefined if it is in another form than the task's prompts.
   */
  questionIn?(text: string): string | undefined;

  /** The prompt that the policy continues. */
  prompt(problem: Problem): Prompt;

  /** A completion that solves the problem. Absent if the task knows no solutions. */
  solution?(problem: Problem): string | NoSolution;

  /** Texts that end an answer, besides the end of the sequence. */
  readonly stop: readonly string[];

  /**
   * The reward of one completion and its parts.
   *
   * @param completion the sampled text without the prompt.
   */
  score(problem: Problem, completion: string): Score;

  /**
   * The problem in a row of a data file, for scoring problems outside the run's dataset.
   *
   * @throws {z.ZodError} if the row is not a problem.
   */
  problemOf(row: unknown): Problem;
}

/** Why a problem has no solution to learn from, in words that can follow "2 problems": `without a solution`. */
export interface NoSolution {
  readonly reason: string;
}

/** Flags of one task only. Each is optional, so that a flag given for another task can be reported. */
type OwnFlags = Readonly<Record<string, z.ZodOptional>>;

/** The learner's settings that one task reads: the common ones and its own. */
type SettingsOf<Flags extends OwnFlags> = CommonSettings & {
  readonly [Key in keyof Flags]?: z.output<Flags[Key]>;
};

/** Reports under its key that a setting conflicts with others. */
export type Complain = (key: string, message: string) => void;

/** The definition of a task; adding one to the list in `registry.ts` adds the task to Offbeat. */
interface TaskDefinition<
  Name extends string,
  Flags extends OwnFlags,
  Spec extends z.ZodObject<{ name: z.ZodLiteral<Name>; dataset: z.ZodType; prompt: z.ZodType }>,
  Problem extends TaskProblem,
> {
  readonly name: Name; // the value of `--task`

  /** The flags that only this task has. */
  readonly settings: Flags;

  /** The schema of the task in a run's configuration: everything that determines problems, prompts and scores. */
  readonly spec: Spec;

  /** Reports invalid combinations of valid settings. */
  check?(settings: SettingsOf<Flags>, complain: Complain): void;

  /**
   * The specification for the settings.
   *
   * @throws {UserError} if the data or the prompt style does not exist.
   */
  configure(settings: SettingsOf<Flags>): Promise<z.infer<Spec>>;

  /** Opens the task with this specification. Nothing is read before its `load`. */
  open(spec: z.infer<Spec>): Task<Problem>;
}

/** Infers the types of a definition from its name, its flags and its specification. */
export function defineTask<
  const Name extends string,
  Flags extends OwnFlags,
  Spec extends z.ZodObject<{ name: z.ZodLiteral<Name>; dataset: z.ZodType; prompt: z.ZodType }>,
  Problem extends TaskProblem,
>(
  definition: TaskDefinition<Name, Flags, Spec, Problem>,
): TaskDefinition<Name, Flags, Spec, Problem> {
  return definition;
}

/** The learner's settings common to all tasks. */
export const CommonSettings = z.object({
  dataset: string
    .optional()
    .describe(
      'a file *.jsonl, *.csv or *.parquet, OWNER/NAME on the Hugging Face hub, or generator (only ' +
        'countdown, its default).',
    ),
  testSize: int
    .positive()
    .default(1_024)
    .describe('number of first problems held out for evaluation.'),
  datasetSeed: int
    .min(0)
    .default(0)
    .describe(
      'seed of the generator, or of the order of a file; --seed does not affect the problems.',
    ),
  promptStyle: string
    .default('compact')
    .describe(
      'prompt style: compact (the only one for the embedded model), fewshot, think, ' +
        'or a template file *.json of your own.',
    ),
  promptLanguage: z
    .enum(promptLanguages)
    .default('en')
    .describe('language of the prompt, for fewshot and think; compact has no words.'),
});
export type CommonSettings = z.infer<typeof CommonSettings>;

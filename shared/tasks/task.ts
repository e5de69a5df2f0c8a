import { z } from 'zod';
import { string, int } from '../service/config-fields.js';
import type { Score } from '../wire/scored-group.js';
import type { Dataset, TaskProblem } from './dataset.js';
import { promptLanguages } from './prompt-template.js';
import type { Prompt } from './prompt.js';

/**
 * A verifiable task as one run has it configured: where its problems come from, how one is put to the
 * model, and what an answer earns. Learner, actors and reward service know tasks by this alone.
 *
 * A problem that is handed to `prompt` or `score` came from the same task's `load` or `problemOf`.
 */
export interface Task<Problem extends TaskProblem = TaskProblem> {
  /**
   * The problems, the same in every process that loads the same specification.
   *
   * @throws {UserError} naming what cannot be read or made, and the remedy.
   */
  load(): Promise<Dataset<Problem>>;

  /** What the policy is asked to continue. */
  prompt(problem: Problem): Prompt;

  /** Texts at which an answer ends, beside the end of the sequence. */
  readonly stop: readonly string[];

  /**
   * The reward of one completion and the parts that it was made of.
   *
   * @param completion the sampled text alone, without the prompt.
   */
  score(problem: Problem, completion: string): Score;

  /**
   * The problem that a row of a data file states, for those who score what no run has.
   *
   * @throws {z.ZodError} if it states none.
   */
  problemOf(row: unknown): Problem;
}

/** Flags of one task alone. Each is optional: that no other task has use for it shows by its being given. */
type OwnFlags = Readonly<Record<string, z.ZodOptional>>;

/** The learner's settings as one task reads them: those of every task and its own. */
type SettingsOf<Flags extends OwnFlags> = CommonSettings & {
  readonly [Key in keyof Flags]?: z.output<Flags[Key]>;
};

/** Reports that a setting does not go with others, under its key. */
export type Complain = (key: string, message: string) => void;

/** A task as it is added to Offbeat: one of these in the list of `registry.ts`. */
interface TaskDefinition<
  Name extends string,
  Flags extends OwnFlags,
  Spec extends z.ZodObject<{ name: z.ZodLiteral<Name>; dataset: z.ZodType; prompt: z.ZodType }>,
  Problem extends TaskProblem,
> {
  readonly name: Name; // as `--task` takes it

  /** The flags that only this task has. */
  readonly settings: Flags;

  /** The task as a run's configuration has it: all that decides what a problem, a prompt, a score is. */
  readonly spec: Spec;

  /** Reports what is wrong with settings each of which is right. */
  check?(settings: SettingsOf<Flags>, complain: Complain): void;

  /**
   * The specification that the settings ask for.
   *
   * @throws {UserError} if the data or the prompt style is not there.
   */
  configure(settings: SettingsOf<Flags>): Promise<z.infer<Spec>>;

  /** The task with this specification. Nothing is read before its `load`. */
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

/** The learner's settings that every task has. */
export const CommonSettings = z.object({
  dataset: string
    .optional()
    .describe(
      'a file *.jsonl, *.csv or *.parquet, or OWNER/NAME on the Hugging Face hub; or generator, which ' +
        'countdown has and defaults to.',
    ),
  testSize: int
    .positive()
    .default(1_024)
    .describe('problems held out for evaluation: the first ones.'),
  datasetSeed: int
    .min(0)
    .default(0)
    .describe('of the generator, or of the order in a file; --seed leaves the problems alone.'),
  promptStyle: string
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

import type { Score } from '../wire/scored-group.js';
import type { Dataset } from './dataset.js';
import type { TaskProblem } from './problem.js';
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

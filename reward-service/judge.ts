import type { Tokenizer } from '../shared/model/tokenizer.js';
import type { Dataset } from '../shared/tasks/dataset.js';
import { promptTokens } from '../shared/tasks/prompt.js';
import { openTask, TaskSpec } from '../shared/tasks/registry.js';
import type { Task, TaskProblem } from '../shared/tasks/task.js';
import type { RolloutGroup } from '../shared/wire/rollout-group.js';
import type { Score } from '../shared/wire/scored-group.js';
import { bySplit, problemOfTicket, refuseMismatch } from './check-group.js';

/** Gives the rewards of one run: all that it knows is the run's configuration and data. */
export interface Judge {
  /**
   * @returns [G] the scores of a group in its order.
   * @throws {GroupRefused} if the group does not answer its ticket.
   */
  scoreGroup(group: RolloutGroup): Score[];
  /**
   * The run's task, for those who score other texts; with `changes` in the place of parts of its
   * specification, such as another `reward`.
   *
   * @throws {z.ZodError} if the task cannot have them.
   */
  task(changes?: Readonly<Record<string, unknown>>): Task;
  problem(id: string): TaskProblem | undefined;
}

export function createJudge(
  spec: TaskSpec,
  dataset: Dataset,
  tokenizer: Tokenizer,
  vocabSize: number,
): Judge {
  const task = openTask(spec);
  const problems = bySplit(dataset);
  return {
    scoreGroup(group) {
      const problem = problemOfTicket(problems, group.ticket);
      refuseMismatch(group, promptTokens(task.prompt(problem), tokenizer), vocabSize);
      return group.rollouts.map(({ tokens }) => task.score(problem, completionText(tokens)));
    },
    task: (changes) =>
      changes === undefined ? task : openTask(TaskSpec.parse({ ...spec, ...changes })),
    problem: (id) => dataset.problem(id),
  };

  /** Decoded here, so that an actor cannot send one text and train on another. */
  function completionText(tokens: Int32Array): string {
    const end = tokens.findIndex((token) => tokenizer.eosTokenIds.includes(token));
    return tokenizer.decode(end === -1 ? tokens : tokens.subarray(0, end));
  }
}

import { goesOnAfterStop } from '../shared/model/stop-strings.js';
import { loadTokenizer, type Tokenizer } from '../shared/model/tokenizer.js';
import type { Dataset, TaskProblem } from '../shared/tasks/dataset.js';
import { promptTokens } from '../shared/tasks/prompt.js';
import { openTask, TaskSpec } from '../shared/tasks/registry.js';
import type { Task } from '../shared/tasks/task.js';
import type { RolloutGroup } from '../shared/wire/rollout-group.js';
import type { RunConfig } from '../shared/run/run-config.js';
import { loadRunData, requireModelOf } from '../shared/run/run-data.js';
import type { Score } from '../shared/wire/scored-group.js';
import {
  bySplit,
  problemOfTicket,
  requireTicketOfRun,
  requireAnswerToTicket,
} from './check-group.js';
import { readModelDirectory } from '../shared/model/model-directory.js';
import type { RewardServiceConfig } from './config.js';

/** A task and its problems, which is all that scoring a text needs. */
export interface TextJudge {
  /**
   * The task, with `changes` instead of its own prompt or rewards.
   *
   * @throws {z.ZodError} if the task does not accept them.
   */
  task(changes?: TaskChanges): Task;
  problem(id: string): TaskProblem | undefined;
}

/** Parts of the task's specification, not yet validated. */
interface TaskChanges {
  readonly prompt?: unknown;
  readonly reward?: unknown;
}

/** Scores the rollouts of one run, from only the run's configuration and data. */
export interface Judge extends TextJudge {
  /**
   * @returns [G] the scores of a group in its order.
   * @throws {GroupRefused} if the group does not answer its ticket, or the ticket is not one of the run.
   */
  scoreGroup(group: RolloutGroup): Score[];
}

export function createTextJudge(spec: TaskSpec, dataset: Dataset): TextJudge {
  const task = openTask(spec);
  return {
    task: (changes) =>
      changes === undefined ? task : openTask(TaskSpec.parse({ ...spec, ...changes })),
    problem: (id) => dataset.problem(id),
  };
}

export function createJudge(
  run: Pick<RunConfig, 'task' | 'groupSize' | 'sampling'>,
  dataset: Dataset,
  tokenizer: Tokenizer,
  vocabSize: number,
): Judge {
  const texts = createTextJudge(run.task, dataset);
  const task = texts.task();
  const problems = bySplit(dataset);
  return {
    ...texts,
    scoreGroup(group) {
      const problem = problemOfTicket(problems, group.ticket);
      requireTicketOfRun(group.ticket, run);
      requireAnswerToTicket(group, promptTokens(task.prompt(problem), tokenizer), {
        vocabSize,
        eosTokenIds: tokenizer.eosTokenIds,
        goesOnAfterStop: (tokens) => goesOnAfterStop(tokens, tokenizer.decode, task.stop),
      });
      return group.rollouts.map(({ tokens }) => task.score(problem, completionText(tokens)));
    },
  };

  /** Decoded here from the tokens, so that the text that is scored is the one that is trained on. */
  function completionText(tokens: Int32Array): string {
    const end = tokens.findIndex((token) => tokenizer.eosTokenIds.includes(token));
    return tokenizer.decode(end === -1 ? tokens : tokens.subarray(0, end));
  }
}

/**
 * Loads a judge of the run from this machine's copies of its problems and its tokenizer.
 *
 * @throws {UserError} if either differs from the run's, or cannot be read.
 */
export async function loadJudge(
  run: RunConfig,
  config: Pick<RewardServiceConfig, 'modelDir' | 'datasetPath'>,
): Promise<Judge> {
  const { dataset } = await loadRunData(run, config);
  const model = await readModelDirectory(config.modelDir);
  requireModelOf(run, model);
  return createJudge(run, dataset, await loadTokenizer(model), model.config.vocabSize);
}

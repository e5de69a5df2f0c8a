import type { Dataset } from '../shared/countdown/dataset.js';
import type { Problem } from '../shared/countdown/problem.js';
import { renderPrompt, type PromptStyle } from '../shared/countdown/prompts.js';
import { scoreAnswer } from '../shared/countdown/score.js';
import type { Tokenizer } from '../shared/model/tokenizer.js';
import type { RolloutGroup } from '../shared/wire/rollout-group.js';
import type { RewardSpec, RunConfig } from '../shared/wire/run-config.js';
import type { Score } from '../shared/wire/scored-group.js';
import { bySplit, problemOfTicket, refuseMismatch } from './check-group.js';

/** Gives the rewards of one run: all that it knows is the run's configuration and data. */
export interface Judge {
  /**
   * @returns [G] the scores of a group in its order.
   * @throws {GroupRefused} if the group does not answer its ticket.
   */
  scoreGroup(group: RolloutGroup): Score[];
  /** The score of one text, by default in the style and with the rewards of the run. */
  scoreText(problem: Problem, completion: string, options?: ScoreOptions): Score;
  problem(id: string): Problem | undefined;
}

export interface ScoreOptions {
  readonly promptStyle?: PromptStyle | undefined;
  readonly reward?: RewardSpec | undefined;
}

export function createJudge(
  run: Pick<RunConfig, 'promptStyle' | 'reward'>,
  dataset: Dataset,
  tokenizer: Tokenizer,
  vocabSize: number,
): Judge {
  const problems = bySplit(dataset);
  const scoreText: Judge['scoreText'] = (problem, completion, options = {}) =>
    scoreAnswer(
      options.promptStyle ?? run.promptStyle,
      problem,
      completion,
      options.reward ?? run.reward,
    );
  return {
    scoreGroup(group) {
      const problem = problemOfTicket(problems, group.ticket);
      refuseMismatch(group, tokenizer.encode(renderPrompt(run.promptStyle, problem)), vocabSize);
      return group.rollouts.map(({ tokens }) => scoreText(problem, completionText(tokens)));
    },
    scoreText,
    problem: (id) => dataset.problem(id),
  };

  /** Decoded here, so that an actor cannot send one text and train on another. */
  function completionText(tokens: Int32Array): string {
    const end = tokens.findIndex((token) => tokenizer.eosTokenIds.includes(token));
    return tokenizer.decode(end === -1 ? tokens : tokens.subarray(0, end));
  }
}

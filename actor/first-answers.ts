import { firstAgree } from '../shared/rl/first-answers.js';
import type { GroupRequest, SampledRollout } from '../shared/model/rollout-draft.js';
import type { Dataset } from '../shared/tasks/dataset.js';
import { type AnswerTokenizer, completionText } from '../shared/tasks/prompt.js';
import type { Task } from '../shared/tasks/task.js';
import type { Ticket } from '../shared/wire/ticket.js';

/** What scores answers as the reward service will. */
export interface AnswerSource {
  readonly dataset: Pick<Dataset, 'problem'>;
  readonly task: Pick<Task, 'score'>;
  readonly tokenizer: AnswerTokenizer;
}

/**
 * Samples the first answers of a training group, and the others only if these do not all earn the same. The scores decide
 * nothing else: the reward service computes those that count, and refuses a group that ended without reason.
 *
 * @param first how many; 0: all at once.
 * @param sample samples a part of the group.
 * @param wasted gets the tokens of the first answers if the others fail.
 * @returns all rollouts of the group, or the first.
 */
export async function sampleFirst(
  { split, problemId }: Pick<Ticket, 'split' | 'problemId'>,
  request: GroupRequest,
  first: number,
  source: AnswerSource,
  sample: (part: GroupRequest) => Promise<SampledRollout[]>,
  wasted: (tokens: number) => void,
): Promise<SampledRollout[]> {
  const problem = source.dataset.problem(problemId);
  if (first === 0 || split !== 'train' || problem === undefined) return sample(request);
  const rollouts = await sample({ ...request, count: first });
  const rewards = rollouts.map(
    ({ tokens }) =>
      source.task.score(problem, completionText(tokens, source.tokenizer)).exactReward,
  );
  if (firstAgree(rewards, first)) return rollouts;
  try {
    const others = { ...request, count: request.count - first, firstIndex: first };
    return [...rollouts, ...(await sample(others))];
  } catch (error) {
    wasted(rollouts.reduce((sum, { tokens }) => sum + tokens.length, 0));
    throw error;
  }
}

import type { Tokenizer } from '../../shared/model/tokenizer.js';
import { problemOf, type Problem } from '../../shared/tasks/countdown/problem.js';
import { renderPrompt, styles } from '../../shared/tasks/countdown/prompts.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import { promptTokens } from '../../shared/tasks/prompt.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import type { Score } from '../../shared/wire/scored-group.js';
import type { TextJudge } from '../../reward-service/judge.js';
import { answerScoreRequest } from '../../reward-service/score-requests.js';
import { ticket } from '../support/messages.js';

export const trained = problemOf([3, 7, 21], 84);
export const heldOut = problemOf([2, 5, 9], 1);

/** One problem to train on and one held out. */
export const dataset: Dataset<Problem> = {
  digest: 'two problems',
  train: [trained],
  test: [heldOut],
  leakedRows: 0,
  problem: (id) => [trained, heldOut].find((problem) => problem.id === id),
};

/** A group that answers its ticket with these texts, each ended by the end-of-sequence token. */
export function answers(
  tokenizer: Tokenizer,
  texts: readonly string[],
  named: Partial<Ticket> = {},
  problem: Problem = trained,
): RolloutGroup {
  const prompt = renderPrompt(styles.compact.en, problem);
  const eos = tokenizer.eosTokenIds[0]!;
  return {
    v: 1,
    ticket: ticket({
      problemId: problem.id,
      groupSize: texts.length,
      issuedAtVersion: 3,
      ...named,
    }),
    actor: 'actor-0',
    promptTokens: Int32Array.from(promptTokens(prompt, tokenizer)),
    rollouts: texts.map((text) => {
      const tokens = Int32Array.of(...tokenizer.encode(text), eos);
      return {
        tokens,
        behaviorLogprobs: new Float32Array(tokens.length).fill(-0.5),
        versions: [[3, tokens.length]],
        stopReason: 'stop',
      };
    }),
    startedAt: 1_000,
    finishedAt: 2_000,
  };
}

/** The answer to a score request, without a pause between its steps. */
export function answeredAtOnce(judge: TextJudge, body: string): Score | Score[] {
  const steps = answerScoreRequest(judge, body);
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

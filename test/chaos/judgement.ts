import { isUniform } from '../../shared/rl/advantages.js';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { readModelDirectory } from '../../shared/model/model-directory.js';
import type { Tokenizer } from '../../shared/model/tokenizer.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import { openTask } from '../../shared/tasks/registry.js';
import type { Task } from '../../shared/tasks/task.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { Score, ScoredGroup } from '../../shared/wire/scored-group.js';
import type { ScoredSeen } from './audit.js';
import { keyOf } from './group-key.js';

/** A group as its actor sent it, with the rewards that the task itself gives. */
export interface JudgedGroup extends ScoredSeen {
  readonly rewards: readonly number[]; // [G]
  readonly lengths: readonly number[]; // [G] sampled tokens
  readonly promptLength: number;
}

/** Scores the actors' samples by the task's own scorer, independently of all records of services. */
export class Judgement {
  private constructor(
    private readonly task: Task,
    private readonly dataset: Dataset,
    private readonly tokenizer: Tokenizer,
  ) {}

  static async open({ task: spec }: Pick<RunConfig, 'task'>, modelDir: string): Promise<Judgement> {
    const task = openTask(spec);
    const tokenizer = await loadTokenizer(await readModelDirectory(modelDir));
    return new Judgement(task, await task.load(), tokenizer);
  }

  /** [G] of the group's answers; undefined if the data has no such problem. */
  scores({ ticket, rollouts }: Pick<RolloutGroup, 'ticket' | 'rollouts'>): Score[] | undefined {
    const problem = this.dataset.problem(ticket.problemId);
    if (problem === undefined) return undefined;
    return rollouts.map(({ tokens }) => {
      const end = tokens.findIndex((token) => this.tokenizer.eosTokenIds.includes(token));
      const answer = end === -1 ? tokens : tokens.subarray(0, end);
      return this.task.score(problem, this.tokenizer.decode(answer));
    });
  }

  /** The rewards of each group by key; a group that came several times counts once. */
  groups(delivered: Iterable<RolloutGroup>): Map<string, JudgedGroup> {
    const judged = new Map<string, JudgedGroup>();
    for (const group of delivered) {
      const key = keyOf(group);
      const scores = judged.has(key) ? undefined : this.scores(group);
      if (scores !== undefined) judged.set(key, judgedGroup(group, scores));
    }
    return judged;
  }

  /** The reward service's mistakes, one sentence each. */
  complaints(scored: Iterable<ScoredGroup>, delivered: ReadonlySet<string>): string[] {
    const problems: string[] = [];
    for (const { group, scores } of scored) {
      const { ticketId, problemId } = group.ticket;
      if (!delivered.has(keyOf(group))) {
        problems.push(`${ticketId}: a group was scored that no actor had delivered`);
        continue;
      }
      const own = this.scores(group);
      if (own === undefined) {
        problems.push(`${ticketId}: ${problemId} was scored, which is not a problem of the run`);
        continue;
      }
      own.forEach((score, i) => {
        const told = scores[i];
        if (score.exactReward === told?.exactReward && score.reward === told.reward) return;
        problems.push(
          `${ticketId}: rollout ${i} was given the reward ${told?.reward ?? 'none'}; the task gives ${score.reward}`,
        );
      });
    }
    return problems;
  }
}

function judgedGroup(group: RolloutGroup, scores: readonly Score[]): JudgedGroup {
  const { ticket, rollouts, promptTokens } = group;
  const versions = rollouts.flatMap((rollout) => rollout.versions.map(([version]) => version));
  return {
    order: ticket.order,
    isUniform: isUniform(scores.map(({ exactReward }) => exactReward)),
    sampledBy: [...new Set(versions)],
    rewards: scores.map(({ reward }) => reward),
    lengths: rollouts.map(({ tokens }) => tokens.length),
    promptLength: promptTokens.length,
  };
}

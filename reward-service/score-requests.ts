import { z } from 'zod';
import { problemOf, type Problem } from '../shared/countdown/problem.js';
import { RewardSpec, RunConfig } from '../shared/wire/run-config.js';
import type { Score } from '../shared/wire/scored-group.js';
import type { Judge } from './judge.js';

/** A request that cannot be answered as it is; the status and message tell its sender what to change. */
export class RequestRefused extends Error {
  override readonly name = 'RequestRefused';
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const maxItems = 1_000;

/** One completion to score: of a problem of the run by its id, or of any other by its content. */
export const ScoreRequest = z
  .strictObject({
    problemId: z.string().min(1).max(256).optional(),
    numbers: z.array(z.int().min(0).max(999_999_999)).min(1).max(16).optional(),
    target: z.int().min(-999_999_999).max(999_999_999).optional(),
    completion: z.string(),
    promptStyle: RunConfig.shape.promptStyle.optional(), // default: the run's
    reward: RewardSpec.optional(), // default: the run's
  })
  .refine(
    ({ problemId, numbers, target }) =>
      problemId === undefined
        ? numbers !== undefined && target !== undefined
        : numbers === undefined && target === undefined,
    { message: 'give either problemId, or numbers and target' },
  );
export type ScoreRequest = z.infer<typeof ScoreRequest>;

/** What answering takes: groups come by the stream alone. */
export type TextJudge = Pick<Judge, 'scoreText' | 'problem'>;

const Batch = z.array(ScoreRequest).max(maxItems);

/**
 * Answers the body of a `POST /score`: an object with its score, an array with theirs in order.
 *
 * @throws {RequestRefused} 400 naming each wrong field, 404 naming a problem that the run does not have.
 */
export function answerScoreRequest(judge: TextJudge, body: string): Score | Score[] {
  let json: unknown;
  try {
    json = JSON.parse(body);
  } catch {
    throw new RequestRefused(400, 'the body is not JSON');
  }
  if (Array.isArray(json)) return check(Batch, json).map((request) => scoreOf(judge, request));
  return scoreOf(judge, check(ScoreRequest, json));
}

function check<Schema extends z.ZodType>(schema: Schema, json: unknown): z.output<Schema> {
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  const shown = parsed.error.issues.slice(0, 10).map(({ path, message }) => {
    return `${path.map(String).join('.') || 'the body'}: ${message}`;
  });
  throw new RequestRefused(400, shown.join('; '));
}

function scoreOf(judge: TextJudge, request: ScoreRequest): Score {
  return judge.scoreText(problemIn(judge, request), request.completion, request);
}

function problemIn(judge: TextJudge, { problemId, numbers, target }: ScoreRequest): Problem {
  if (problemId === undefined) return problemOf(numbers!, target!);
  const problem = judge.problem(problemId);
  if (problem === undefined) {
    throw new RequestRefused(404, `the run has no problem ${JSON.stringify(problemId)}`);
  }
  return problem;
}

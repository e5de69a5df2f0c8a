import { z } from 'zod';
import type { TaskProblem } from '../shared/tasks/task.js';
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
    problem: z.record(z.string(), z.unknown()).optional(), // as a row of a data file states it
    completion: z.string(),
    task: z.record(z.string(), z.unknown()).optional(), // parts in the place of the run's own
  })
  .refine(({ problemId, problem }) => (problemId === undefined) !== (problem === undefined), {
    message: 'give either problemId or problem',
  });
export type ScoreRequest = z.infer<typeof ScoreRequest>;

/** What answering takes: groups come by the stream alone. */
export type TextJudge = Pick<Judge, 'task' | 'problem'>;

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
  throw refusal(parsed.error);
}

function scoreOf(judge: TextJudge, request: ScoreRequest): Score {
  const task = explained('task', () => judge.task(request.task));
  return task.score(problemIn(judge, request), request.completion);
}

function problemIn(judge: TextJudge, { problemId, problem: row }: ScoreRequest): TaskProblem {
  if (problemId === undefined) return explained('problem', () => judge.task().problemOf(row));
  const problem = judge.problem(problemId);
  if (problem === undefined) {
    throw new RequestRefused(404, `the run has no problem ${JSON.stringify(problemId)}`);
  }
  return problem;
}

/** What `make` makes; its complaints name the part of the request that they are about. */
function explained<T>(part: string, make: () => T): T {
  try {
    return make();
  } catch (caught) {
    throw caught instanceof z.ZodError ? refusal(caught, part) : caught;
  }
}

function refusal({ issues }: z.ZodError, ...within: string[]): RequestRefused {
  const shown = issues.slice(0, 10).map(({ path, message }) => {
    return `${[...within, ...path.map(String)].join('.') || 'the body'}: ${message}`;
  });
  return new RequestRefused(400, shown.join('; '));
}

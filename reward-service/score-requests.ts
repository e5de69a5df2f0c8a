import { z } from 'zod';
import { excessIn } from '../shared/base/json-bounds.js';
import type { TaskProblem } from '../shared/tasks/dataset.js';
import type { Score } from '../shared/wire/scored-group.js';
import type { TextJudge } from './judge.js';

/** A request that cannot be answered; status and message say what the sender must change. */
export class RequestRefused extends Error {
  override readonly name = 'RequestRefused';
  constructor(
    readonly status: number,
    message: string,
    /** Seconds after which the same request can be retried; undefined: never. */
    readonly retryAfterSeconds?: number,
  ) {
    super(message);
  }
}

/** Maximum items per request. */
export const maxItems = 1_000;

/** One completion to score: for a problem of the dataset by id, or for any other by its content. */
export const ScoreRequest = z
  .strictObject({
    problemId: z
      .string()
      .min(1)
      .max(256)
      .optional()
      .describe('Id of a problem that this service has; or give problem.'),
    problem: z
      .record(z.string(), z.unknown())
      .optional()
      .describe('Any other problem, as a row of a data file: {"nums": [3, 7, 21], "target": 84}.'),
    completion: z
      .string()
      .describe('The sampled text: without the prompt, but with the stop sequence, if any.'),
    task: z
      .strictObject({ prompt: z.unknown().optional(), reward: z.unknown().optional() })
      .optional()
      .describe('A prompt or rewards to use instead of those of the service.'),
  })
  .refine(({ problemId, problem }) => (problemId === undefined) !== (problem === undefined), {
    message: 'give either problemId or problem',
  });
export type ScoreRequest = z.infer<typeof ScoreRequest>;

const Batch = z.array(ScoreRequest).max(maxItems);

/**
 * Answers the body of a `POST /score`: an object with its score, an array with theirs in order. Yields
 * after each completion; the work between two yields is linear in the body.
 *
 * @throws {RequestRefused} 400 naming each wrong field, 404 naming an unknown problem.
 */
export function* answerScoreRequest(
  judge: TextJudge,
  body: string,
): Generator<void, Score | Score[]> {
  const requests = readRequests(body);
  if (!Array.isArray(requests)) return scoreOf(judge, requests);
  const scores: Score[] = [];
  for (const [i, request] of requests.entries()) {
    scores.push(scoreOf(judge, request, String(i)));
    yield;
  }
  return scores;
}

/** Five times what a thousand completions with a prompt each need. */
const bodyBounds = { values: 200_000, containers: 50_000, depth: 32 };

function readRequests(body: string): ScoreRequest | ScoreRequest[] {
  const excess = excessIn(Buffer.from(body), bodyBounds);
  if (excess !== undefined) throw new RequestRefused(413, `the body has ${excess}; send several`);
  let json: unknown;
  try {
    json = JSON.parse(body);
  } catch {
    throw new RequestRefused(400, 'the body is not JSON');
  }
  return Array.isArray(json) ? check(Batch, json) : check(ScoreRequest, json);
}

function check<Schema extends z.ZodType>(schema: Schema, json: unknown): z.output<Schema> {
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  throw refusal(parsed.error);
}

/** @param within path of the request in the body. */
function scoreOf(judge: TextJudge, request: ScoreRequest, ...within: string[]): Score {
  const task = explained([...within, 'task'], () => judge.task(request.task));
  return task.score(problemIn(judge, request, within), request.completion);
}

function problemIn(
  judge: TextJudge,
  { problemId, problem: row }: ScoreRequest,
  within: readonly string[],
): TaskProblem {
  if (problemId === undefined) {
    return explained([...within, 'problem'], () => judge.task().problemOf(row));
  }
  const problem = judge.problem(problemId);
  if (problem === undefined) {
    const path = [...within, 'problemId'].join('.');
    throw new RequestRefused(404, `${path}: there is no problem ${JSON.stringify(problemId)} here`);
  }
  return problem;
}

/** The result of `make`; its errors name the part of the request that they refer to. */
function explained<T>(part: readonly string[], make: () => T): T {
  try {
    return make();
  } catch (caught) {
    throw caught instanceof z.ZodError ? refusal(caught, part) : caught;
  }
}

function refusal({ issues }: z.ZodError, within: readonly string[] = []): RequestRefused {
  const shown = issues.slice(0, 10).map(({ path, message }) => {
    return excerpt(`${[...within, ...path.map(String)].join('.') || 'the body'}: ${message}`);
  });
  return new RequestRefused(400, shown.join('; '));
}

const shownChars = 300; // of an error, which may quote the request

function excerpt(text: string): string {
  return text.length <= shownChars ? text : `${text.slice(0, shownChars)}…`;
}

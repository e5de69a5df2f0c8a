import { z } from 'zod';
import { TaskSpec } from '../shared/tasks/registry.js';
import { Score } from '../shared/wire/scored-group.js';
import { maxItems, ScoreRequest } from './score-requests.js';

/** The body of an error response. */
export const ScoreError = z.strictObject({
  error: z.string().describe('What is wrong, and where in the body.'),
});

/**
 * The OpenAPI 3.1 description of the HTTP service. Its schemas are the ones that validate requests.
 *
 * @param needsKey whether this server requires a key.
 */
export function openApiDocument({ needsKey }: { needsKey: boolean }): object {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Offbeat reward service',
      version: '1.0.0',
      description:
        'Scores completions with the exact rewards that a run trains with. Stateless: the same ' +
        'request gets the same answer from every replica.',
    },
    paths: {
      '/score': {
        post: {
          operationId: 'score',
          summary: 'Scores one completion, or several in order.',
          ...(needsKey && { security: [{ key: [] }] }),
          requestBody: {
            required: true,
            content: json(oneOrMany('ScoreRequest'), {
              problemOfTheRun: { value: { problemId: '3,7,21=84', completion: '(7-3)*21' } },
              anyProblem: {
                value: { problem: { nums: [3, 7, 21], target: 84 }, completion: '7*21-3' },
              },
              several: {
                value: ['(7-3)*21', '7*21', ''].map((completion) => ({
                  problem: { nums: [3, 7, 21], target: 84 },
                  completion,
                })),
              },
            }),
          },
          responses: {
            '200': { description: 'The scores.', content: json(oneOrMany('Score')) },
            ...refusals,
          },
        },
      },
      '/openapi.json': {
        get: {
          operationId: 'describe',
          summary: 'This document.',
          responses: { '200': { description: 'The document.', content: json({ type: 'object' }) } },
        },
      },
    },
    components: {
      securitySchemes: {
        key: {
          type: 'apiKey',
          in: 'header',
          name: 'X-API-Key',
          description: 'The key that the service was started with (--http-key).',
        },
      },
      schemas: {
        ScoreRequest: scoreRequest(),
        Task: schemaOf(TaskParts),
        Score: schemaOf(Score),
        Error: schemaOf(ScoreError),
      },
    },
  };
}

/** Schemas of the task's parts, which the request schema leaves open. */
const TaskParts = z.union(
  TaskSpec.options.map(({ shape }) =>
    z.strictObject({
      prompt: shape.prompt.optional(),
      ...('reward' in shape && { reward: shape.reward.optional() }),
    }),
  ),
);

/** The request schema with the task's parts, and the rule that JSON Schema cannot derive from a check. */
function scoreRequest() {
  const { properties, ...rest } = schemaOf(ScoreRequest);
  const { description } = ScoreRequest.shape.task;
  return {
    ...rest,
    properties: { ...properties, task: { ...reference('Task'), description } },
    oneOf: [{ required: ['problemId'] }, { required: ['problem'] }],
  };
}

const retryAfter = {
  description: 'Seconds after which the request may be sent again.',
  schema: { type: 'integer' },
};

const refusals = Object.fromEntries(
  Object.entries({
    400: 'The body is not JSON, or not a request; each wrong field is named.',
    401: 'The service was started with a key, and the request has none.',
    403: 'The request has another key than the service.',
    404: 'No problem held here has this id.',
    408: 'The request took longer than 10 seconds to arrive.',
    413: 'The body has more than a megabyte, or too many values.',
    500: 'The service failed.',
    503: 'The request was not scored within 5 seconds: send fewer completions, or try again later.',
  }).map(([status, description]) => [
    status,
    {
      description,
      ...(status === '503' && { headers: { 'Retry-After': retryAfter } }),
      content: json(reference('Error')),
    },
  ]),
);

function schemaOf(schema: z.ZodType) {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io: 'input' });
  return rest;
}

function oneOrMany(name: string) {
  return { oneOf: [reference(name), { type: 'array', items: reference(name), maxItems }] };
}

function reference(name: string) {
  return { $ref: `#/components/schemas/${name}` };
}

function json(schema: object, examples?: object) {
  return { 'application/json': { schema, ...(examples && { examples }) } };
}

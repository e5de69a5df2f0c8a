import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { z } from 'zod';
import { Score } from '../../shared/wire/scored-group.js';
import { serveScores } from '../../reward-service/http-server.js';
import type { HttpServer } from '../../shared/service/http-server.js';
import { createJudge } from '../../reward-service/judge.js';
import { openApiDocument, ScoreError } from '../../reward-service/openapi.js';
import { silent } from '../support/log.js';
import { runConfig } from '../support/messages.js';
import { dataset } from './values.js';

const unused = {
  encode: unreached,
  decode: unreached,
  chatText: unreached,
  beginning: [],
  eosTokenIds: [],
  unknownTokenId: undefined,
};
function unreached(): never {
  throw new Error('texts are scored without a tokenizer');
}

/** What we read of the document. */
const Document = z.object({
  paths: z.object({
    '/score': z.object({
      post: z.object({
        requestBody: z.object({
          content: z.object({
            'application/json': z.object({
              examples: z.record(z.string(), z.object({ value: z.unknown() })),
            }),
          }),
        }),
        responses: z.record(z.string(), z.object({ description: z.string() })),
      }),
    }),
  }),
  components: z.object({
    schemas: z.record(
      z.string(),
      z.object({ properties: z.record(z.string(), z.unknown()).default({}) }),
    ),
  }),
});

describe('GET /openapi.json', () => {
  let server: HttpServer;
  let text: string;
  let document: z.infer<typeof Document>;
  before(async () => {
    server = await serveScores({
      host: '127.0.0.1',
      port: 0,
      key: undefined,
      judge: createJudge(runConfig(), dataset, unused, 1),
      log: silent,
      signal: new AbortController().signal,
    });
    const response = await fetch(`http://127.0.0.1:${server.port}/openapi.json`);
    assert.equal(response.status, 200);
    text = await response.text();
    document = Document.parse(JSON.parse(text));
  });
  after(() => server[Symbol.asyncDispose]());

  const post = async (body: unknown) => {
    const response = await fetch(`http://127.0.0.1:${server.port}/score`, {
      method: 'POST',
      body: JSON.stringify(body),
    });
    return { status: response.status, body: await response.json() };
  };

  it('the description is valid OpenAPI 3.1 for an independent validator', async () => {
    const validator = new Validator();
    const { valid, errors } = await validator.validate(text);
    assert(valid, JSON.stringify(errors));
    assert.equal(validator.version, '3.1');
  });

  it('the description is checked by a validator that finds errors in an invalid document', async () => {
    const { valid } = await new Validator().validate(text.replace('"responses"', '"answers"'));
    assert(!valid);
  });

  it('the description contains every schema that it refers to', () => {
    const named = [...text.matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(([, name]) => name!);
    assert(named.length > 0);
    for (const name of named) assert(Object.hasOwn(document.components.schemas, name), name);
  });

  it('the description has only examples that get the documented answers', async () => {
    const { requestBody } = document.paths['/score'].post;
    const examples = Object.values(requestBody.content['application/json'].examples);
    assert(examples.length > 0);
    for (const { value } of examples) {
      const { status, body } = await post(value);
      assert.equal(status, 200, JSON.stringify(body));
      z.union([Score, z.array(Score)]).parse(body);
    }
  });

  it('the description says whether a key is required and how to send it', async () => {
    const security = z.object({
      paths: z.object({
        '/score': z.object({ post: z.object({ security: z.unknown().optional() }) }),
      }),
    });
    const ofPost = (of: unknown) => security.parse(of).paths['/score'].post.security;
    assert.equal(ofPost(JSON.parse(text)), undefined);
    const guarded = openApiDocument({ needsKey: true });
    assert.deepEqual(ofPost(guarded), [{ key: [] }]);
    const { valid, errors } = await new Validator().validate({ ...guarded });
    assert(valid, JSON.stringify(errors));
  });

  it('the description names every status that a request may get, and the form of its error', async () => {
    const { responses } = document.paths['/score'].post;
    const sent = [
      [{ problemId: dataset.train[0]!.id, completion: '' }, 200],
      [{}, 400],
      [{ problemId: 'none', completion: '' }, 404],
      [{ completion: ' '.repeat(1 << 20) }, 413],
    ] as const;
    for (const [request, expected] of sent) {
      const { status, body } = await post(request);
      assert.equal(status, expected);
      assert(Object.hasOwn(responses, String(status)));
      if (status !== 200) ScoreError.parse(body);
    }
  });

  it('the description explains every field', () => {
    for (const name of ['ScoreRequest', 'Score', 'Error']) {
      for (const [field, schema] of Object.entries(document.components.schemas[name]!.properties)) {
        assert.match(String((schema as { description?: string }).description), /\w/, field);
      }
    }
  });
});

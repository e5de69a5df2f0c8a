import { fromBinary } from '@bufbuild/protobuf';
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { LocalBackend } from '../../local-backend/local-backend.js';
import { protobufType } from '../../shared/tinker/codec.js';
import { SampleResponseSchema } from '../../shared/tinker/tinker_pb.js';
import {
  forwardBackward,
  type Json,
  modelName,
  startOn,
  tinyModel,
  Wire,
} from './running-backend.js';

describe('the sampling routes of the local backend', () => {
  let directory: Awaited<ReturnType<typeof tinyModel>>;
  let backend: LocalBackend;
  let wire: Wire;
  let session: string;
  let samplers = 0;

  before(async () => {
    directory = await tinyModel();
    backend = await startOn(directory.path);
    wire = new Wire(backend.url);
    session = await wire.createSession();
  });
  after(async () => {
    await backend[Symbol.asyncDispose]();
    await directory[Symbol.asyncDispose]();
  });

  /** Opens a session that samples from the base model. */
  const openSampler = async (): Promise<string> => {
    const opened = await wire.post('create_sampling_session', {
      session_id: session,
      sampling_session_seq_id: samplers++,
      base_model: modelName,
    });
    return String(opened['sampling_session_id']);
  };
  const sample = (sampler: string, seqId: number, fields: Json = {}) =>
    wire.post('asample', {
      sampling_session_id: sampler,
      seq_id: seqId,
      num_samples: 2,
      prompt: { chunks: [{ type: 'encoded_text', tokens: [3, 4, 5] }] },
      sampling_params: { max_tokens: 6, seed: 1 },
      ...fields,
    });

  describe('retrieve_futures', () => {
    const poll = (sampler: string, fields: Json = {}, clone = 0) =>
      wire.post('retrieve_futures', {
        target: {
          type: 'sampling_session',
          sampling_session_id: sampler,
          cloned_sampler_id: clone,
        },
        ...fields,
      });
    const idsOf = (answer: Json) =>
      (answer['completions'] as Json[]).map((completion) => completion['request_id']);

    it('one poll lists the settled requests of a sampling client, and no copy of it', async () => {
      const sampler = await openSampler();
      const own = [await sample(sampler, 0), await sample(sampler, 1)];
      const copied = await sample(sampler, 1_000_000_000);
      for (const promise of [...own, copied]) await wire.samples(promise);

      const answer = await poll(sampler);
      assert.deepEqual(
        idsOf(answer),
        own.map((promise) => promise['request_id']),
      );
      assert.deepEqual(
        (answer['completions'] as Json[]).map(({ state }) => state),
        ['finished', 'finished'],
      );
      assert.deepEqual(idsOf(await poll(sampler, {}, 1)), [copied['request_id']]);
    });

    it('a poll waits for the next request to settle, and without a wait answers at once', async () => {
      const sampler = await openSampler();
      assert.deepEqual(await poll(sampler, { timeout: 0 }), { completions: [], cursor: 0 });
      const waiting = poll(sampler);
      const promise = await sample(sampler, 0);
      assert.deepEqual(idsOf(await waiting), [promise['request_id']]);
    });

    it('a result that the client has is dropped', async () => {
      const sampler = await openSampler();
      const promise = await sample(sampler, 0);
      const { cursor } = await poll(sampler);
      await poll(sampler, {
        timeout: 0,
        prev_cursor: cursor,
        retrieved_request_ids: [promise['request_id']],
      });
      assert.equal((await wire.poll(promise)).status, 410);
    });

    it('a sampling session that nobody opened is refused', async () => {
      const refused = await wire.tryPost('retrieve_futures', {
        target: { type: 'sampling_session', sampling_session_id: 'none' },
      });
      assert.equal(refused.status, 404);
      assert.match(await refused.text(), /sampling session .* is unknown/);
    });
  });

  describe('the most probable tokens', () => {
    const asked = { topk_prompt_logprobs: 3, topk_sample_logprobs: 2, prompt_logprobs: true };
    type Pairs = ([token: number, logprob: number][] | null)[];
    const near = (a: number, b: number) => Math.abs(a - b) < 1e-5;

    it('each position of the prompt and of a sample has as many as asked, the most probable first', async () => {
      const sampler = await openSampler();
      const greedy = { max_tokens: 6, temperature: 0 };
      const answer = await wire.result(
        await sample(sampler, 0, { ...asked, sampling_params: greedy }),
      );
      const prompt = answer['topk_prompt_logprobs'] as Pairs;
      assert.deepEqual(
        prompt.map((pairs) => pairs?.length),
        [undefined, 3, 3],
      );
      for (const pairs of prompt.slice(1)) {
        const logprobs = pairs!.map(([, logprob]) => logprob);
        assert.deepEqual(
          logprobs,
          [...logprobs].sort((a, b) => b - a),
        );
      }
      for (const sequence of answer['sequences'] as Json[]) {
        const tokens = sequence['tokens'] as number[];
        const logprobs = sequence['logprobs'] as number[];
        const top = sequence['topk_logprobs'] as Pairs;
        assert.deepEqual(
          top.map((pairs) => pairs![0]![0]),
          tokens,
          'a greedy sample takes the most probable token',
        );
        assert(top.every((pairs, t) => pairs!.length === 2 && near(pairs![0]![1], logprobs[t]!)));
      }
    });

    it('they have the logprob that the same token has in the prompt', async () => {
      const sampler = await openSampler();
      const answer = await wire.result(
        await sample(sampler, 0, { ...asked, topk_prompt_logprobs: 22 }),
      );
      const logprobs = answer['prompt_logprobs'] as number[];
      (answer['topk_prompt_logprobs'] as Pairs).forEach((pairs, i) => {
        if (pairs === null) return;
        const [, own] = pairs.find(([token]) => token === 3 + i)!;
        assert(near(own, logprobs[i]!), `position ${i}: ${own} and ${logprobs[i]}`);
        const sum = pairs.reduce((total, [, logprob]) => total + Math.exp(logprob), 0);
        assert(near(sum, 1), `position ${i}: all tokens have ${sum}`);
      });
    });

    it('only the last tokens of the prompt are scored where only they are asked for', async () => {
      const sampler = await openSampler();
      const answer = await wire.result(
        await sample(sampler, 0, { ...asked, prompt_logprobs_last_n: 1 }),
      );
      assert.deepEqual(
        (answer['topk_prompt_logprobs'] as Pairs).map((pairs) => pairs?.length),
        [undefined, undefined, 3],
      );
    });

    it('in protobuf they are rows of one matrix', async () => {
      const sampler = await openSampler();
      const response = await wire.poll(await sample(sampler, 0, asked), protobufType);
      const { topkPromptLogprobs: top, sequences } = fromBinary(
        SampleResponseSchema,
        new Uint8Array(await response.arrayBuffer()),
      );
      assert.deepEqual([top!.k, top!.length], [3, 3]);
      assert.equal(top!.tokenIds.length, 4 * 9);
      const logprobs = new Float32Array(top!.logprobs.slice().buffer);
      assert.deepEqual([...logprobs.subarray(0, 3)], [-99_999, -99_999, -99_999]);
      for (const { tokens, topkSampledLogprobs: own } of sequences) {
        assert.deepEqual([own!.k, own!.length], [2, tokens.length / 4]);
      }
    });
  });

  describe('a stop text', () => {
    const ended = async (sampler: string, seqId: number, stop: unknown) => {
      const sampling_params = { max_tokens: 40, seed: 1, stop };
      const { sequences } = await wire.samples(
        await sample(sampler, seqId, { num_samples: 32, sampling_params }),
      );
      return sequences;
    };

    it('a stop text that is exactly one special token ends samples as that token does', async () => {
      const sampler = await openSampler();
      const padding = 0; // <pad>, which no text contains
      const byToken = await ended(sampler, 0, [padding]);
      assert(byToken.some(({ tokens }) => tokens.at(-1) === padding));
      assert.deepEqual(await ended(sampler, 1, '<pad>'), byToken);
      const besideText = await ended(sampler, 2, ['<pad>', '7']);
      const seven = 10; // after three special tokens and 0 to 6
      assert.deepEqual(besideText, await ended(sampler, 3, [padding, seven]));
    });
  });

  describe('cancel_future', () => {
    const cancel = async (promise: Json) => {
      const { request_id } = promise;
      assert.equal((await wire.tryPost('cancel_future', { request_id })).status, 204);
    };

    it('a cancelled sample fails, and one that waited behind it is drawn', async () => {
      const sampler = await openSampler();
      const large = { num_samples: 4_096, sampling_params: { max_tokens: 60, stop: [] } };
      const cancelled = [await sample(sampler, 0, large), await sample(sampler, 1, large)];
      const kept = await sample(sampler, 2);
      for (const promise of cancelled) await cancel(promise);
      for (const promise of cancelled) {
        assert.deepEqual(await wire.result(promise), {
          error: 'the request was cancelled',
          category: 'user',
        });
      }
      assert.equal((await wire.samples(kept)).sequences.length, 2);
    });

    it('a sample that is drawn already stays as it is', async () => {
      const promise = await sample(await openSampler(), 0);
      await wire.samples(promise);
      await cancel(promise);
      assert.equal((await wire.samples(promise)).sequences.length, 2);
    });

    it('another operation, and an id that was never issued, are refused', async () => {
      const model = await wire.createModel(session, 90);
      const step = await wire.optimStep(model, 1);
      for (const [id, status, words] of [
        [step['request_id'], 400, /only samples can be cancelled/],
        ['unknown', 404, /was never issued/],
      ] as const) {
        const refused = await wire.tryPost('cancel_future', { request_id: id });
        assert.equal(refused.status, status);
        assert.match(await refused.text(), words);
      }
    });
  });

  describe('inflight samplers', () => {
    it('all inflight samplers of a run sample from its last inflight save, which the answer names', async () => {
      const model = await wire.createModel(session, 91);
      let seqId = 0;
      const train = async () => {
        await wire.evaluation(await wire.sendForwardBackward(forwardBackward(model, ++seqId)));
        await wire.result(await wire.optimStep(model, ++seqId, 0.5));
      };
      const save = async (fields: Json) =>
        wire.result(
          await wire.post('save_weights_for_sampler', {
            model_id: model,
            seq_id: ++seqId,
            ...fields,
          }),
        );
      const sampled = async (sampler: unknown, id: number) => {
        const answer = await wire.result(await sample(String(sampler), id));
        const tokens = (answer['sequences'] as Json[]).map((sequence) => sequence['tokens']);
        return { tokens, path: answer['weights_path'] };
      };
      const path = (number: number) => `tinker://${model}/sampler_weights/checkpoint-000${number}`;

      await train();
      const { sampling_session_id: early } = await save({ kind: 'inflight' });
      const before = await sampled(early, 0);
      assert.equal(before.path, path(1));
      await train();
      const { sampling_session_id: late } = await save({ kind: 'inflight' });
      const after = await sampled(early, 1);
      assert.equal(after.path, path(2));
      assert.deepEqual(await sampled(late, 0), after);
      assert.notDeepEqual(after.tokens, before.tokens);
      const { checkpoints } = await wire.get(`training_runs/${model}/checkpoints`);
      const expires = (checkpoints as Json[]).map(({ expires_at }) => typeof expires_at);
      assert.deepEqual(
        expires.sort(),
        ['object', 'string'],
        'replaced weights do not stay forever',
      );

      await train();
      const { sampling_session_id: fixed } = await save({});
      assert.equal((await sampled(fixed, 0)).path, undefined, 'of a snapshot it is known');
      assert.equal((await sampled(early, 2)).path, path(2), 'a snapshot replaced inflight weights');
    });

    it('an inflight save with a name or a time to live is refused', async () => {
      const model = await wire.createModel(session, 92);
      const save = { model_id: model, kind: 'inflight' };
      for (const [seq_id, more] of [
        [1, { path: 'a' }],
        [2, { ttl_seconds: 3600 }],
      ] as const) {
        const promise = await wire.post('save_weights_for_sampler', { ...save, seq_id, ...more });
        assert.match(String((await wire.result(promise))['error']), /no path and no ttl_seconds/);
      }
    });
  });
});

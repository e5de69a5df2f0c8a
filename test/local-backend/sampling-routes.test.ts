import { fromBinary } from '@bufbuild/protobuf';
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { LocalBackend } from '../../local-backend/local-backend.js';
import { protobufType } from '../../shared/tinker/codec.js';
import { SampleResponseSchema } from '../../shared/tinker/tinker_pb.js';
import { type Json, modelName, startOn, tinyModel, Wire } from './running-backend.js';

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
});

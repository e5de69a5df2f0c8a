import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import {
  planSample,
  SamplingQueue,
  ScoringQueue,
  type QueuedSample,
} from '../../local-backend/sampling-requests.js';
import type { SampleJob, SamplingCalls } from '../../local-backend/sampling-worker.js';
import type { Scores, ScoringJob } from '../../local-backend/scored-texts.js';
import type { ServedModel } from '../../local-backend/served-model.js';
import { characterVocabSize } from '../../shared/model/character-tokenizer.js';
import { parseModelConfig } from '../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../shared/model/model-writer.js';
import { SampleRequest } from '../../shared/tinker/sampling-api.js';
import { tinySizes } from '../support/tiny-model.js';
import { never } from '../support/waiting.js';
import { unreadDirectory } from './values.js';

const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config.json');
const model: ServedModel = { name: 'base', directory: unreadDirectory(config) };

const sample = (sampling: Record<string, unknown>, tokens: number[], more = {}) => ({
  prompt: { chunks: [{ type: 'encoded_text', tokens }] },
  sampling_params: sampling,
  ...more,
});

function plan(sampling: Record<string, unknown>, tokens: number[] = [3, 4, 5], more = {}) {
  return planSample(SampleRequest.parse(sample(sampling, tokens, more)), model, 77);
}

describe('a sampling request', () => {
  it('a sampling request uses the defaults of the API', () => {
    const { job, questions } = plan({});
    assert.deepEqual(job, {
      prompt: Int32Array.of(3, 4, 5),
      count: 1,
      maxTokens: 16,
      temperature: 1,
      seed: 77,
      stopTokenIds: [],
      stopStrings: [],
    });
    assert.deepEqual(questions, {
      temperature: 1,
      wantsPrompt: false,
      firstScored: 1,
      topPrompt: 0,
      topSampled: 0,
    });
  });

  it('a sampling request is refused if its temperature is too small to divide by', () => {
    assert.throws(
      () => plan({ temperature: 1e-46 }),
      /temperature is 1e-46; at least 0\.000001, or 0/,
    );
    assert.equal(plan({ temperature: 0 }).job.temperature, 0);
  });

  it('a sampling request accepts a string as one stop, and lists of strings or tokens', () => {
    assert.deepEqual(plan({ stop: 'end' }).job.stopStrings, ['end']);
    assert.deepEqual(plan({ stop: ['a', 'b'] }).job.stopStrings, ['a', 'b']);
    assert.deepEqual(plan({ stop: [1, 2] }).job.stopTokenIds, [1, 2]);
  });

  it('a sampling request accepts 64-bit seeds and keeps different ones different', () => {
    const seeds = [0, -1, '9223372036854775807', '9223372036854775806', '18446744073709551615'];
    const taken = seeds.map((seed) => plan({ seed }).job.seed);
    assert.equal(new Set(taken).size, seeds.length);
    assert(taken.every(Number.isSafeInteger));
  });

  it('a sampling request limits max_tokens to the positions of the model', () => {
    assert.equal(plan({ max_tokens: 1000 }).job.maxTokens, tinySizes.maxPositions - 3);
  });

  it('a sampling request scores the prompt at the temperature of the request, or at 1 for a greedy one', () => {
    const asked = { prompt_logprobs: true };
    assert.equal(plan({ temperature: 0.5 }, [3], asked).questions.temperature, 0.5);
    assert.equal(plan({ temperature: 0 }, [3], asked).questions.temperature, 1);
  });

  it('a sampling request is refused when it truncates the distribution', () => {
    assert.throws(() => plan({ top_k: 5 }), /top_k is 5/);
    assert.throws(() => plan({ top_p: 0.9 }), /top_p is 0.9/);
    plan({ top_k: characterVocabSize, top_p: 1 }); // leaves the distribution whole
  });

  it('a sampling request is refused when the prompt is empty, too long or outside the vocabulary', () => {
    assert.throws(() => plan({}, []), /no tokens/);
    assert.throws(() => plan({}, new Array<number>(tinySizes.maxPositions).fill(3)), /takes 64/);
    assert.throws(() => plan({}, [3, characterVocabSize]), /token 22 at 1/);
    assert.throws(() => plan({}, [3, 2 ** 32 + 3]), /element 1 of 2 is not a token id/);
  });

  it('a sampling request for the logprobs of a prompt as long as the model samples nothing', () => {
    const whole = new Array<number>(tinySizes.maxPositions).fill(3);
    assert.equal(plan({ max_tokens: 1 }, whole, { prompt_logprobs: true }).job.maxTokens, 0);
    const longer = [...whole, 3];
    assert.throws(() => plan({}, longer, { prompt_logprobs: true }), /has 65 tokens; .* takes 64/);
  });

  it('a sampling request may ask for no token where it asks for the logprobs of its prompt', () => {
    assert.equal(plan({ max_tokens: 0 }, [3], { prompt_logprobs: true }).job.maxTokens, 0);
    assert.throws(() => plan({ max_tokens: 0 }), /max_tokens is 0: it needs prompt_logprobs/);
  });

  it('a sampling request is refused when it uses an unsupported feature', () => {
    assert.throws(() => plan({}, [3], { num_samples: 1_000_000 }), /num_samples/);
  });

  it('a sampling request may ask for at most as many probable tokens as there are, and no more than fit in an answer', () => {
    const { questions } = plan({}, [3], { topk_prompt_logprobs: 4, topk_sample_logprobs: 3 });
    assert.deepEqual([questions.topPrompt, questions.topSampled], [4, 3]);
    const tooMany = characterVocabSize + 1;
    assert.throws(
      () => plan({}, [3], { topk_prompt_logprobs: tooMany }),
      /topk_prompt_logprobs is 23; at most 22/,
    );
    assert.throws(
      () => plan({ max_tokens: 60 }, [3], { num_samples: 4_096, topk_sample_logprobs: 20 }),
      /4915200 logprobs; at most 4194304: send fewer samples in a request/,
    );
  });

  it('a sampling request is refused for each unknown field that asks for something', () => {
    for (const [field, value] of Object.entries({
      prompt_alt_tokens_k: 3,
      target_prompt_logprobs: { data: [4], dtype: 'int64', shape: [1, 1] },
      record_stability_info: true,
    })) {
      const words = `${field} is ${JSON.stringify(value)}: not supported here; leave it out`;
      const { issues } = SampleRequest.safeParse(sample({}, [3], { [field]: value })).error!;
      assert.deepEqual(
        issues.map(({ message }) => message),
        [words],
      );
    }
    assert.throws(() => plan({ min_p: 0.1 }), /min_p is 0\.1: not supported here/);
    const defaults = { prompt_alt_tokens_k: 0, target_prompt_logprobs: null };
    assert.equal(plan({ min_p: 0 }, [3], defaults).job.count, 1);
  });

  it('a sampling request with an empty list of stops continues past the end of sequence', () => {
    assert.equal(plan({ stop: [] }).job.ignoresEos, true);
    assert.equal(plan({ stop: [5] }).job.ignoresEos, undefined);
  });
});

function queued({ weights = 'a', length = 3, count = 1 } = {}): QueuedSample {
  return {
    adapter: { folder: weights, sha256: weights, rank: 1, alpha: 2 },
    job: {
      prompt: new Int32Array(length).fill(5),
      count,
      maxTokens: 4,
      temperature: 1,
      seed: 0,
      stopTokenIds: [],
      stopStrings: [],
    },
  };
}

/** A fake sampling thread that returns the prompt of each job and records its calls. */
function echo(refuses: (prompt: Int32Array) => boolean = () => false, maxRows?: number) {
  const calls: (readonly SampleJob[])[] = []; // the jobs of each
  const sample: SamplingCalls['sample'] = ({ jobs }) => {
    calls.push(jobs);
    if (jobs.some(({ prompt }) => refuses(prompt))) return Promise.reject(new Error('refused'));
    const answer = (tokens: Int32Array) => ({
      tokens,
      logprobs: new Float32Array(tokens.length),
      stopReason: 'stop' as const,
    });
    return Promise.resolve(jobs.map(({ prompt }) => [answer(prompt)]));
  };
  const call = (_name: string, input: never) => sample(input) as Promise<never>;
  return { calls, queue: new SamplingQueue(() => ({ call }), maxRows) };
}

const sizesOf = (calls: readonly (readonly SampleJob[])[]) => calls.map((jobs) => jobs.length);

describe('a wave of sampling requests', () => {
  /** The jobs of each wave in which the queue samples `requests`. */
  async function waves(requests: readonly QueuedSample[]) {
    const { calls, queue } = echo();
    await Promise.all(requests.map((request) => queue.sample(request, never)));
    return calls;
  }
  const sizes = async (requests: readonly QueuedSample[]) => sizesOf(await waves(requests));

  it('a wave contains all requests with the same weights and sample count, in order of arrival', async () => {
    const [a, b, c] = [queued(), queued({ length: 7 }), queued({ length: 5 })];
    const [other, more] = [queued({ weights: 'b' }), queued({ count: 2 })];
    const [first] = await waves([a, b, other, more, c]);
    assert.deepEqual(first, [a.job, b.job, c.job]);
  });

  it('a wave holds at most 256 samples and 8,192 prompt tokens', async () => {
    const singles = Array.from({ length: 300 }, () => queued());
    assert.deepEqual(await sizes(singles), [256, 44]);
    const groups = Array.from({ length: 20 }, () => queued({ count: 16 }));
    assert.deepEqual(await sizes(groups), [16, 4]);
    const long = Array.from({ length: 20 }, () => queued({ length: 1000 }));
    assert.deepEqual(await sizes(long), [8, 8, 4]);
    assert.deepEqual(await sizes([queued({ length: 5000 }), queued({ length: 10 })]), [1, 1]);
  });

  it('a wave contains only one request when that exceeds the limits by itself', async () => {
    const large = queued({ length: 9_000 });
    assert.deepEqual(await sizes([large, large]), [1, 1]);
  });
});

describe('the sampling queue', () => {
  it('the sampling queue samples waiting requests in one batch and returns to each its own result', async () => {
    const { calls, queue } = echo();
    const lengths = [3, 5, 4];
    const asked = lengths.map((length) => queue.sample(queued({ length }), never));
    assert.equal(queue.depth, 3);
    const answers = await Promise.all(asked);
    assert.deepEqual(
      answers.map(([answer]) => answer!.tokens.length),
      lengths,
    );
    assert.deepEqual(sizesOf(calls), [3]);
    assert.equal(queue.depth, 0);
  });

  it('the sampling queue samples requests that arrive during a wave in the next one', async () => {
    const { calls, queue } = echo();
    await queue.sample(queued(), never);
    await Promise.all([
      queue.sample(queued(), never),
      queue.sample(queued({ weights: 'b' }), never),
    ]);
    assert.deepEqual(sizesOf(calls), [1, 1, 1]);
  });

  it('the sampling queue fails only the invalid request of a wave', async () => {
    const { calls, queue } = echo((prompt) => prompt.length === 5);
    const [first, second, third] = await Promise.allSettled(
      [3, 5, 4].map((length) => queue.sample(queued({ length }), never)),
    );
    assert.equal(first!.status, 'fulfilled');
    assert.equal(second!.status, 'rejected');
    assert.equal(third!.status, 'fulfilled');
    assert.deepEqual(sizesOf(calls), [3, 1, 1, 1]);
  });

  it('the sampling queue samples a large request in parts with different seeds, and others in between', async () => {
    const jobs: SampleJob[] = [];
    const sample: SamplingCalls['sample'] = (input) => {
      jobs.push(...input.jobs);
      const drawn = input.jobs.map(({ count, seed }) =>
        Array.from({ length: count }, (_, i) => ({
          tokens: Int32Array.of(seed % 1_000, i),
          logprobs: new Float32Array(2),
          stopReason: 'stop' as const,
        })),
      );
      return Promise.resolve(drawn);
    };
    const call = (_name: string, input: never) => sample(input) as Promise<never>;
    const queue = new SamplingQueue(() => ({ call }));
    const [large, small] = await Promise.all([
      queue.sample(queued({ count: 600 }), never),
      queue.sample(queued({ weights: 'b' }), never),
    ]);
    assert.deepEqual([large.length, small.length], [600, 1]);
    assert.deepEqual(
      jobs.map(({ count }) => count),
      [256, 1, 256, 88],
    );
    const narrow = echo(undefined, 64);
    await narrow.queue.sample(queued({ count: 100 }), never);
    assert.deepEqual(
      narrow.calls.flat().map(({ count }) => count),
      [64, 36],
    );
    const seeds = jobs.filter(({ count }) => count > 1).map(({ seed }) => seed);
    assert.deepEqual([seeds[0], new Set(seeds).size], [0, 3]);
  });

  it('the sampling queue drops a cancelled request that waits, and samples the others', async () => {
    const { calls, queue } = echo();
    const cancelled = new AbortController();
    const asked = [queued(), queued({ length: 5 })].map((request, i) =>
      queue.sample(request, i === 0 ? cancelled.signal : never),
    );
    cancelled.abort();
    await assert.rejects(asked[0]!, {
      name: 'PermanentError',
      message: 'the request was cancelled',
    });
    assert.equal((await asked[1]!)[0]!.tokens.length, 5);
    assert.deepEqual(sizesOf(calls), [1]);
  });

  it('the sampling queue samples no further part of a request that is cancelled during one', async () => {
    const cancelled = new AbortController();
    let parts = 0;
    const sample: SamplingCalls['sample'] = ({ jobs }) => {
      parts++;
      cancelled.abort();
      return Promise.resolve(jobs.map(() => []));
    };
    const call = (_name: string, input: never) => sample(input) as Promise<never>;
    const queue = new SamplingQueue(() => ({ call }));
    await assert.rejects(queue.sample(queued({ count: 600 }), cancelled.signal), /was cancelled/);
    assert.equal(parts, 1);
  });
});

describe('the scoring queue', () => {
  const text = (from: number, ...tokens: number[]) => ({ tokens: Int32Array.from(tokens), from });
  const asked = (texts: ScoringJob['texts'], more: Partial<ScoringJob> = {}): ScoringJob => ({
    ...{ adapter: undefined, k: 0, temperature: 1, texts },
    ...more,
  });
  /** Answers each text with its own tokens as logprobs. */
  function scoring() {
    const calls: number[] = []; // texts of each
    const score = ({ texts, k }: ScoringJob): Promise<Scores[]> => {
      calls.push(texts.length);
      const top = { k, tokens: new Int32Array(), logprobs: new Float32Array() };
      const scores = texts.map(({ tokens, from }) => ({
        logprobs: Float32Array.from(tokens.subarray(from)),
        top,
      }));
      return Promise.resolve(scores);
    };
    const call = (_name: string, input: never) => score(input) as Promise<never>;
    return { calls, queue: new ScoringQueue({ call }) };
  }

  it('requests that arrive within some milliseconds are scored in one call, and each gets its own scores', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { calls, queue } = scoring();
    const first = queue.score(asked([text(1, 3, 4, 5), text(2, 6, 7, 8)]), never);
    t.mock.timers.tick(3);
    const second = queue.score(asked([text(1, 9, 10)]), never);
    assert.deepEqual(calls, []);
    t.mock.timers.tick(2);
    const scores = [await first, await second];
    assert.deepEqual(
      scores.map((each) => each.map(({ logprobs }) => [...logprobs])),
      [[[4, 5], [8]], [[10]]],
    );
    assert.deepEqual(calls, [3]);
  });

  it('many texts of one request are scored in several calls, of which those that still wait can be aborted', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { calls, queue } = scoring();
    const thousand = text(1, ...new Array<number>(1_000).fill(3));
    const all = queue.score(asked(new Array<typeof thousand>(20).fill(thousand)), never);
    for (let turn = 0; turn < 3; turn++) {
      t.mock.timers.tick(5);
      await setImmediate();
    }
    assert.deepEqual([calls, (await all).length], [[8, 8, 4], 20]);

    calls.length = 0;
    const cancelled = new AbortController();
    const some = queue.score(
      asked(new Array<typeof thousand>(20).fill(thousand)),
      cancelled.signal,
    );
    cancelled.abort();
    t.mock.timers.tick(5);
    await assert.rejects(some, /the request was cancelled/);
    assert.deepEqual(calls, [8]);
  });

  it('other weights, another temperature, another number of most probable tokens and too many tokens take calls of their own', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { calls, queue } = scoring();
    const adapter = { folder: 'f', sha256: 'a', rank: 1, alpha: 1 };
    const long = text(1, ...new Array<number>(5_000).fill(3));
    const scores = [
      ...[{}, { adapter }, { temperature: 2 }, { k: 4 }].map((more) =>
        queue.score(asked([text(1, 3, 4)], more), never),
      ),
      queue.score(asked([long]), never),
    ];
    t.mock.timers.tick(5);
    await Promise.all(scores);
    assert.deepEqual(calls, [1, 1, 1, 1, 1]);
  });
});

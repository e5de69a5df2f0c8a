import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { groupRequest, openEngine } from '../../actor/sampler/engine-values.js';
import { unproven } from '../../actor/values.js';
import { VllmTwin } from '../../support/vllm-twin.js';
import { never } from '../../support/waiting.js';

describe('what an actor asks of a vLLM server', () => {
  it('a group is one request of token ids, which names an adapter and says everything about the distribution', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(3), unproven, never);
    const before = twin.sent('/inference/v1/generate').length;
    using place = engine.place();
    const sequences = await place.generate(3, groupRequest, 60_000, never);
    const sent = twin.sent('/inference/v1/generate').slice(before) as {
      model: string;
      cache_salt: string;
      token_ids: number[];
    }[];
    assert.equal(sent.length, 1);
    const [{ model, cache_salt: salt, token_ids: ids }] = sent as [(typeof sent)[0]];
    assert.match(model, /^r\.v3\.[0-9a-f]{12}\.a\.[0-9a-f]{6}$/);
    assert.equal(salt, model);
    assert.deepEqual(ids, [1, 2, 3]);

    const expected = twin.logprobs({ adapter: model, temperature: 1 });
    assert.deepEqual(
      sequences.map(({ tokens, stopReason }) => [[...tokens], stopReason]),
      [
        [[6, 7, 0, 1, 2], 'stop'],
        [[7, 0, 1, 2], 'stop'],
        [[0, 1, 2], 'stop'],
      ],
    );
    for (const { tokens, logprobs } of sequences) {
      tokens.forEach((token, i) => {
        assert(Math.abs(logprobs[i]! - expected[token]!) < 1e-6);
      });
    }
  });

  it('the most probable tokens of an answer are shown with it, if they are asked for', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(3), unproven, never);
    using place = engine.place();
    const k = engine.mostProbable;
    const one = { ...groupRequest, count: 1, maxTokens: 1, mostProbable: k };
    const [answer] = await place.generate(3, one, 60_000, never);
    const [{ model }] = twin.sent('/inference/v1/generate').slice(-1) as [{ model: string }];
    const expected = twin.logprobs({ adapter: model, temperature: 1 });
    const { tokens, logprobs } = answer!.top!;
    assert.equal(tokens.length, k);
    const shown = [...tokens].flatMap((token, i) => (logprobs[i]! < -9_999 ? [] : [token]));
    assert(new Set(shown).size > 1, shown.join(', '));
    shown.forEach((token, i) => {
      assert(Math.abs(logprobs[i]! - expected[token]!) < 1e-6);
    });
  });

  it('version 0 is an adapter of its own, too', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(0), unproven, never);
    assert.equal([...twin.loaded.keys()].filter((name) => name.startsWith('r.v0.')).length, 1);
  });

  const broken: readonly [string, (choice: Record<string, unknown>) => void, RegExp][] = [
    [
      'a logprob above 0',
      (choice) => {
        edit(choice, { logprob: 0.5 });
      },
      /logprob 0.5/,
    ],
    [
      'the mark of a missing logprob',
      (choice) => {
        edit(choice, { logprob: -9999 });
      },
      /-9999/,
    ],
    [
      "another token's logprob",
      (choice) => {
        edit(choice, { token_id: 5 });
      },
      /of another token/,
    ],
    ['no logprobs', (choice) => (choice['logprobs'] = null), /not of this protocol/],
    ['one token too few', (choice) => (choice['token_ids'] = [6, 7]), /of another token|2 tokens/],
    ['an end by abort', (choice) => (choice['finish_reason'] = 'abort'), /by abort/],
    [
      'weights that changed within it',
      (choice) => (choice['weight_versions'] = [{ version: 'a' }, { version: 'b' }]),
      /changed the weights/,
    ],
  ];
  for (const [what, damage, words] of broken) {
    it(`an answer with ${what} is refused`, async () => {
      await using twin = await VllmTwin.start();
      await using opened = await openEngine([twin.url]);
      const { engine, adapters } = opened;
      await engine.load(adapters.manifest(1), unproven, never);
      twin.tamper = (choices) => {
        damage(choices[1]!);
        return choices;
      };
      using place = engine.place();
      await assert.rejects(place.generate(1, groupRequest, 60_000, never), words);
    });
  }

  it('an answer of an older server, which names its tokens in words, is understood', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(1), unproven, never);
    twin.tamper = (choices) => {
      for (const choice of choices) for (const entry of entriesOf(choice)) delete entry['token_id'];
      return choices;
    };
    using place = engine.place();
    const [sequence] = await place.generate(1, groupRequest, 60_000, never);
    assert.deepEqual([...sequence!.tokens], [6, 7, 0, 1, 2]);
  });

  it('an answer with a sequence too few is refused', async () => {
    await using twin = await VllmTwin.start();
    await using opened = await openEngine([twin.url]);
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(1), unproven, never);
    twin.tamper = (choices) => choices.slice(1);
    using place = engine.place();
    await assert.rejects(place.generate(1, groupRequest, 60_000, never), /2 sequences for 3/);
  });
});

function edit(choice: Record<string, unknown>, change: object): void {
  Object.assign(entriesOf(choice)[0]!, change);
}

/** What an answer says of each token. */
function entriesOf(choice: Record<string, unknown>): Record<string, unknown>[] {
  return (choice['logprobs'] as { content: Record<string, unknown>[] }).content;
}

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { groupRequest, openEngine } from '../../actor/sampler/engine-values.js';
import { unproven } from '../../actor/values.js';
import { SglangTwin } from '../../support/sglang-twin.js';
import { never } from '../../support/waiting.js';

type Rows = ([number | null, number, unknown][] | null)[];

describe('what an actor asks of an SGLang server', () => {
  /** The answer to a request for one token with the most probable ones. */
  async function oneToken(twin: SglangTwin, alter: (rows: Rows) => Rows = (rows) => rows) {
    await using opened = await openEngine([twin.url], { kind: 'sglang' });
    const { engine, adapters } = opened;
    await engine.load(adapters.manifest(3), unproven, never);
    twin.tamper = (sequences) => {
      for (const { meta_info: meta } of sequences) {
        meta['output_top_logprobs'] = alter(meta['output_top_logprobs'] as Rows);
      }
      return sequences;
    };
    using place = engine.place();
    const { mostProbable } = engine;
    const one = { ...groupRequest, count: 1, maxTokens: 1, temperature: 0.5, mostProbable };
    const [answer] = await place.generate(3, one, 60_000, never);
    const [{ lora_path: adapter }] = twin.sent('/generate').slice(-1) as [{ lora_path: string }];
    const expected = twin.logprobs({ adapter, temperature: 0.5 });
    return { top: answer!.top!, expected };
  }

  it('the most probable tokens of an answer are shown with it, at its temperature', async () => {
    await using twin = await SglangTwin.start();
    const { top, expected } = await oneToken(twin);
    const shown = [...top.tokens].flatMap((token, i) =>
      top.logprobs[i]! < -9_999 ? [] : [[token, top.logprobs[i]!] as const],
    );
    assert.equal(new Set(shown.map(([token]) => token)).size, shown.length);
    assert(shown.length > 1);
    for (const [token, logprob] of shown) assert(Math.abs(logprob - expected[token]!) < 1e-6);
  });

  it('a token whose probability rounds to 0 is left out of the most probable ones', async () => {
    await using twin = await SglangTwin.start();
    const { top } = await oneToken(twin, ([row]) => [[...row!.slice(0, 2), [null, 5, null]]]);
    assert.equal(top.logprobs.filter((logprob) => logprob > -9_999).length, 2);
  });

  const missing: readonly [string, (rows: Rows) => Rows][] = [
    ['no most probable tokens', () => []],
    ['none at a position', () => [null]],
    ['an empty list of them', () => [[]]],
  ];
  for (const [what, alter] of missing) {
    it(`an answer with ${what} is refused, since it would prove a canary by nothing`, async () => {
      await using twin = await SglangTwin.start();
      await assert.rejects(oneToken(twin, alter), /without the 20 most probable tokens/);
    });
  }
});

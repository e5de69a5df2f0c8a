import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CanarySource, canaryTexts } from '../../../learner/publish/canary-source.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import type { Datum } from '../../../shared/rl/datum.js';
import { Canary, canaryDigest } from '../../../shared/wire/canary.js';
import { silent } from '../../support/log.js';

const texts = [Int32Array.of(3, 4, 5, 6), Int32Array.from({ length: 60 }, (_, i) => i)];

/** A source whose backend gives the i-th target of a text this logprob. */
function source(logprob: (text: number, i: number) => number, limitMs?: number) {
  const passes: { data: readonly Datum[]; loss: string; config: object }[] = [];
  const of = new CanarySource({
    run: {
      forward: (data, loss, config) => {
        passes.push({ data, loss, config });
        const logprobs = data.map(({ tokens }, text) =>
          Float32Array.from(tokens, (_, i) => logprob(text, i)),
        );
        if (Number.isNaN(logprobs[0]![0])) return new Promise(() => undefined);
        return Promise.resolve({ logprobs, metrics: {} });
      },
    },
    ...{ texts, temperature: 0.8, arithmetic: 'bf16', limitMs, log: silent },
    idle: new IdleClock(() => 0),
  });
  return { of, passes };
}

describe('the canary of a version', () => {
  it('the canary has the logprobs of the weights at the time of the request, at the temperature of sampling', async () => {
    const { of, passes } = source((text, i) => -(1 + text) / (1 + i));
    const wait = of.request(3);
    assert.equal(passes.length, 1); // before anyone waits
    const canary = (await wait())!;
    const [{ data, loss, config }] = passes as [(typeof passes)[0]];
    assert.deepEqual([loss, config], ['cross_entropy', { temperature: 0.8 }]);
    assert.deepEqual([...data[0]!.tokens, ...data[0]!.targetTokens], [3, 4, 5, 4, 5, 6]);
    assert.deepEqual(data[0]!.inputs.weights, new Float32Array(3));
    assert.deepEqual(Canary.parse(Canary.encode(canary)), canary);
    assert.deepEqual([canary.temperature, canary.arithmetic], [0.8, 'bf16']);
    assert.equal(canary.places.length, 27); // all 3 of the short text, and the last 24 of the long one
    canary.places.forEach(([text, index], i) => {
      assert.equal(canary.logprobs[i], Math.fround(-(1 + text) / index));
      assert(index >= texts[text]!.length - 24);
    });
  });

  it('the canary has what the first version and the one before give its tokens, as far as this session made them', async () => {
    let version = 0;
    const { of } = source((text, i) => -(1 + text + version / 8) / (1 + i));
    const canaries: Canary[] = [];
    for (const next of [4, 5, 6, 7, 6]) {
      version = next;
      canaries.push((await of.request(next)())!);
    }
    const others = canaries.map(({ earlier }) => earlier?.map((one) => one.version));
    assert.deepEqual(others, [undefined, [4], [4, 5], [4, 6], [4]]);
    const last = canaries[3]!;
    assert.deepEqual(Canary.parse(Canary.encode(last)), last);
    last.earlier!.forEach((one) => {
      last.places.forEach(([text, index], i) => {
        const wanted = -(1 + text + one.version / 8) / index;
        assert.equal(one.logprobs[i], Math.fround(wanted));
      });
    });
  });

  it('what earlier versions give has one logprob for each place, finite and at most 0', async () => {
    const canary = (await source((_, i) => -1 / (1 + i)).of.request(3)())!;
    const { logprobs } = canary;
    const encoded = (of: Float32Array<ArrayBuffer>) =>
      Canary.encode({ ...canary, earlier: [{ version: 2, logprobs: of }] });
    assert(Canary.safeParse(encoded(logprobs)).success);
    assert.throws(() => encoded(logprobs.slice(1)), /expected one logprob for each of 27 places/);
    for (const wrong of [NaN, -Infinity, 0.5]) {
      const some = Float32Array.from(logprobs, (each, i) => (i === 4 ? wrong : each));
      assert.throws(() => encoded(some), /finite and at most 0/);
    }
  });

  it('a version is published without a canary when the logprobs do not come, or are not finite', async () => {
    for (const logprob of [NaN, -Infinity]) {
      const { of } = source(() => logprob, 1);
      assert.equal(await of.request(3)(), undefined);
    }
  });

  it('the digest changes with the version and with every part of the canary', async () => {
    const { of } = source((_, i) => -1 / (1 + i));
    await of.request(2)();
    const canary = (await of.request(3)())!;
    const [first] = canary.earlier!;
    const changed: Canary[] = [
      { ...canary, temperature: 0.9 },
      { ...canary, arithmetic: 'fp32' },
      { ...canary, texts: [Int32Array.of(3, 4, 5, 7), canary.texts[1]!] },
      { ...canary, places: canary.places.map(([text, index]) => [text, index === 3 ? 2 : index]) },
      {
        ...canary,
        logprobs: canary.logprobs.map((logprob, i) => (i === 9 ? logprob - 1e-6 : logprob)),
      },
      { ...canary, earlier: [{ ...first!, version: 1 }] },
      { ...canary, earlier: [{ ...first!, logprobs: canary.logprobs.map((each) => each - 1) }] },
    ];
    const digests = [canaryDigest(3, canary), canaryDigest(4, canary)];
    digests.push(...changed.map((one) => canaryDigest(3, one)));
    assert.equal(new Set(digests).size, 9);
    assert.equal(canaryDigest(3, structuredClone(canary)), digests[0]);
  });
});

describe('the texts of canaries', () => {
  const tokenizer = {
    encode: (text: string) => Int32Array.from(text, (char) => char.charCodeAt(0)),
    chatText: () => '',
    beginning: [],
  };
  const problems = Array.from({ length: 50 }, (_, i) => ({ id: `${i}`, difficulty: 'x' }));
  const make = (named: { seed?: number; maxPositions?: number; count?: number } = {}) =>
    canaryTexts({
      task: {
        prompt: ({ id }) => ({ text: `${id}=` }),
        solution: ({ id }) => (Number(id) % 2 === 0 ? `${id}+0` : { reason: 'odd' }),
      },
      dataset: { train: problems.slice(0, named.count ?? 50) },
      ...{ tokenizer, seed: named.seed ?? 0, maxPositions: named.maxPositions ?? 64 },
    }).map((text) => String.fromCharCode(...text));

  it('the texts are prompts with their solutions where the task knows them, the same for the same seed', () => {
    const found = make();
    assert.equal(new Set(found).size, 8);
    for (const text of found) {
      const id = parseInt(text, 10);
      assert.equal(text, id % 2 === 0 ? `${id}=${id}+0` : `${id}=`);
    }
    assert.deepEqual(make(), found);
    assert.notDeepEqual(make({ seed: 1 }), found);
  });

  it('there is at most one text for each problem, none longer than the model takes', () => {
    assert.equal(make({ count: 3 }).length, 3);
    assert(make({ maxPositions: 3 }).every((text) => text.length <= 3));
  });
});

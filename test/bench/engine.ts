import { EventEmitter, on } from 'node:events';
import { CanaryCheck } from '../../actor/canary-check.js';
import { PolicyFollower } from '../../actor/policy-follower.js';
import { EngineSampler } from '../../actor/sampler/engine-sampler.js';
import { createRandom } from '../../shared/base/random.js';
import type { Canary } from '../../shared/wire/canary.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { groupRequest, openEngine } from '../actor/sampler/engine-values.js';
import { twinVocabulary } from '../support/engine-twin.js';
import { silent } from '../support/log.js';
import { VllmTwin } from '../support/vllm-twin.js';
import type { Figure } from './main.js';

/** docs/engines.md has a measurement. */
const loads = Number(process.env['ENGINE_LOADS'] ?? 200);
const places = 32; // as a learner publishes them

/**
 * Measures the actor's own part of adopting versions with vLLM: from the manifest, over fetching, writing and loading the adapter and
 * reproducing its canary, to the first token that is drawn with it. The server is the copy of vLLM's protocol, which takes no
 * time to load or to draw, in the same process.
 */
export async function benchEngine(): Promise<Figure[]> {
  await using twin = await VllmTwin.start();
  await using opened = await openEngine([twin.url]);
  const { engine, adapters } = opened;
  await using sampler = new EngineSampler(engine, {
    ...{ tokenizer: { decode: () => '' }, concurrency: 1, segmentTokens: 0, log: silent },
  });
  const canaries = new CanaryCheck(sampler, 'fp32');
  const news = new EventEmitter();
  const store = {
    at: () => Promise.resolve(undefined),
    async *watch(signal: AbortSignal) {
      for await (const [next] of on(news, 'manifest', { signal })) yield next as PolicyManifest;
    },
  };
  const policies = new PolicyFollower({ store, sampler, canaries, log: silent });
  const stop = new AbortController();
  const following = policies.follow(stop.signal).catch(() => undefined);
  const seconds: number[] = [];
  const one = { ...groupRequest, count: 1, maxTokens: 1 };
  let failed = 0;
  for (let version = 1; version <= loads; version++) {
    const manifest = { ...adapters.manifest(version), canary: canaryOf(twin, version) };
    const startedAt = performance.now();
    news.emit('manifest', manifest);
    using _hold = await policies.holdAtLeast(version, stop.signal);
    const wasRefused = policies.whyNotLoaded !== undefined;
    await sampler.sample(one, { version, adoptsNewer: false }, stop.signal);
    seconds.push((performance.now() - startedAt) / 1_000);
    if (wasRefused) failed++;
  }
  stop.abort();
  await following;
  seconds.sort((a, b) => a - b);
  const quantile = (q: number) => 1_000 * seconds[Math.ceil(q * loads) - 1]!;
  const loadCalls = twin.everLoaded.filter((name) => !name.startsWith('r.v0.')).length;
  return [
    { what: 'manifest to first token, median', value: quantile(0.5), unit: 'ms' },
    { what: 'manifest to first token, 99 %', value: quantile(0.99), unit: 'ms' },
    { what: `failed loads of ${loads}`, value: failed + loadCalls - loads, unit: 'loads' },
  ];
}

/** What a trainer of the version says, by the twin's own formula. */
function canaryOf(twin: VllmTwin, version: number): Canary {
  const random = createRandom(`canary ${version}`);
  const texts = Array.from({ length: 8 }, () =>
    Int32Array.from({ length: 24 }, () => random.int(twinVocabulary)),
  );
  const wanted = Array.from({ length: places }, (_, i): [number, number] => [
    i % texts.length,
    1 + random.int(23),
  ]);
  const all = twin.logprobs({ adapter: `r.v${version}.x`, temperature: 1 });
  const logprobs = Float32Array.from(wanted, ([text, at]) => all[texts[text]![at]!]!);
  return { temperature: 1, arithmetic: 'fp32', texts, places: wanted, logprobs };
}

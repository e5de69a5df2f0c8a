import diagnostics from 'node:diagnostics_channel';
import type { ClientRequest } from 'node:http';
import { loadavg } from 'node:os';
import { CanaryCheck } from '../../../actor/canary-check.js';
import { PolicyFollower } from '../../../actor/policy-follower.js';
import { connectEngine } from '../../../actor/sampler/connect-engine.js';
import { EngineSampler } from '../../../actor/sampler/engine-sampler.js';
import type { Arithmetic } from '../../../shared/base/arithmetic.js';
import { createRandom } from '../../../shared/base/random.js';
import { TaskScope } from '../../../shared/base/task-scope.js';
import { type Adapter, createAdapter, encodeAdapter } from '../../../shared/model/lora.js';
import { readModelDirectory } from '../../../shared/model/model-directory.js';
import { Scorer } from '../../../shared/model/scorer.js';
import { loadTokenizer } from '../../../shared/model/tokenizer.js';
import { compareCanary } from '../../../shared/rl/canary.js';
import { brokerOn } from '../../support/broker.js';
import { silent } from '../../support/log.js';
import { NatsServer } from '../../support/nats-server.js';
import { manifest } from '../../actor/values.js';
import { canariesOf, type CanarySetting } from '../../bench/canary-policies.js';
import { smolLm2 } from '../smollm2.js';
import { atMost, type SuiteContext } from '../suite.js';
import { chosenClasses, served, startVllm, vllmPython } from './vllm.js';

const rank = Number(process.env['VLLM_LARGE_RANK'] ?? 106); // 130 MB in float32 with SmolLM2-135M
const versions = Number(process.env['ENGINE_LOADS'] ?? 20);

const sentences = [
  'The capital of France is Paris, and the capital of Italy is Rome.',
  'Water boils at one hundred degrees and freezes at zero degrees.',
  'Once upon a time there was a little girl who lived near a forest.',
  'def add(a, b): return a + b',
  'Two and two are four; three and three are six.',
  'The quick brown fox jumps over the lazy dog.',
  'She opened the door and looked out into the rain.',
  'In 1969 the first people walked on the moon.',
];

/**
 * Times the adoption of versions with large adapters, from the manifest to the first token, and each part of it: a real nats-server,
 * the actor's own follower, loader, sampler and canary check, and a real vLLM, in float32 or in the classes of VLLM_CLASSES.
 */
export async function testLargeAdapters(context: SuiteContext): Promise<void> {
  for (const arithmetic of chosenClasses('fp32')) await timeAdoption(context, arithmetic);
}

async function timeAdoption(context: SuiteContext, arithmetic: Arithmetic): Promise<void> {
  const { note, report } = context;
  const python = await vllmPython(context);
  const modelDir = await smolLm2(context);
  const directory = await readModelDirectory(modelDir);
  const { config: model } = directory;
  await using scope = new TaskScope(context.signal);
  const { signal } = scope;
  await using server = await startVllm(python, signal, {
    ...served[arithmetic],
    ...{ modelDir, rank: 128 },
  });
  await using nats = await NatsServer.start();
  await using broker = await brokerOn(nats);
  await broker.ensureRun({ trainTickets: 8, evalTickets: 8 });
  const tokenizer = await loadTokenizer(directory);
  const texts = sentences.map((sentence) => new Int32Array(tokenizer.encode(sentence)));
  const prompt = texts[0]!;
  const stages = new Stages();
  await using engine = await connectEngine({
    ...{ kind: 'vllm', urls: [server.url], apiKey: undefined, adapterDir: undefined },
    ...{ run: 'large', actor: 'compat', maxLoras: undefined, model, rank },
    ...{ groupSize: 1, maxStepsOffPolicy: 1, temperature: 1, prompt, log: silent, signal },
    adapters: {
      fetchAdapter: (of) => stages.during(fetched, broker.policy.fetchAdapter(of)),
    },
    waitingFor: () => undefined,
  });
  const sampler = new EngineSampler(engine, {
    ...{ tokenizer, concurrency: 1, segmentTokens: 0, log: silent },
  });
  const check = new CanaryCheck(sampler, arithmetic);
  const differences: ReturnType<typeof compareCanary>[] = [];
  const canaries: Pick<CanaryCheck, 'require'> = {
    require: (published, score, ...rest) =>
      check.require(
        published,
        async (asked, ending) => {
          const scores = await score(asked, ending);
          differences.push(compareCanary(published.canary!.logprobs, scores, asked.band));
          return scores;
        },
        ...rest,
      ),
  };
  const follower = new PolicyFollower({ store: broker.policy, sampler, canaries, log: silent });
  scope.start((ending) => follower.follow(ending));

  const scorer = await Scorer.load(directory, { threads: 2 });
  const trainer: CanarySetting['trainer'] = {
    forward: (adapter, data, temperature) => {
      const tokens = data.map((one) => one.tokens);
      const targets = data.map((one) => one.targetTokens);
      return scorer.logprobs(tokens, targets, adapter, temperature);
    },
  };
  const base = createAdapter(model, { rank, alpha: rank, seed: 0, attn: true, mlp: true });
  const seconds: number[] = [];
  let refused = 0;
  for (let version = 0; version < versions; version++) {
    signal.throwIfAborted();
    const adapter = versionOf(base, version);
    const { safetensors: bytes } = encodeAdapter(adapter);
    if (version === 0)
      note(`  adapters of ${(bytes.byteLength / 1e6).toFixed(1)} MB, rank ${rank}`);
    const [canary] = await canariesOf({ trainer, texts, settings: { temperature: 1 } }, [adapter]);
    const { v: _v, publishedAt: _at, adapter: _adapter, ...update } = manifest(version, { canary });
    await broker.policy.publish(update, { bytes, rank, alpha: rank });
    const startedAt = performance.now();
    stages.begin();
    using _hold = await follower.holdAtLeast(version, signal);
    if (follower.whyNotLoaded !== undefined) refused++;
    const one = { prompt, count: 1, maxTokens: 1, temperature: 1, seed: version, stopTokenIds: [] };
    await sampler.sample(one, { version, adoptsNewer: false }, signal);
    seconds.push((performance.now() - startedAt) / 1_000);
    stages.end();
    await broker.policy.retire(new Set([version])); // the store holds a few adapters only
  }
  scope.abort();
  const [median, most] = [0.5, 0.99].map((q) => quantileOf(seconds, q));
  const [largest, mean] = [
    differences.map((one) => one.difference),
    differences.map((one) => one.mean),
  ].map((found) => Math.max(...found).toPrecision(3));
  note(
    `  ${arithmetic}: canaries differ by at most ${largest} nats, on average by at most ${mean}`,
  );
  note(
    `  manifest to first token of ${versions} versions: median ${median!.toFixed(2)} s, 99 % ${most!.toFixed(2)} s; load average ${loadavg()[0]!.toFixed(0)}`,
  );
  for (const line of stages.lines()) note(line);
  report(atMost(`versions refused of ${versions}`, refused, 0));
  // What follows is vLLM's own arithmetic, which on a CPU takes many times as long.
  const untilLoaded = quantileOf(stages.secondsUntilLoaded, 0.5);
  report(atMost('manifest to a large adapter loaded by vLLM, median, s', untilLoaded, 1.5));
}

function quantileOf(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.ceil(q * sorted.length) - 1] ?? NaN;
}

/** Another adapter for each version, all of which change the policy. */
function versionOf(base: Adapter, version: number): Adapter {
  const random = createRandom('large adapter');
  const tensors = new Map(
    [...base.tensors].map(([key, { dims, data }]) => {
      if (!key.endsWith('.lora_B')) return [key, { dims, data }] as const;
      const scale = 0.004 * (1 + version / 4);
      const b = new Float32Array(data.length);
      const cycle = Float32Array.from({ length: 4_099 }, () => (random.next() * 2 - 1) * scale);
      for (let i = 0; i < b.length; i++) b[i] = cycle[i % cycle.length]!;
      return [key, { dims, data: b }] as const;
    }),
  );
  return { ...base, tensors };
}

/** When the parts of an adoption end, by the requests that the actor makes. */
class Stages {
  readonly #seconds = new Map<string, number[]>();
  #last = 0;
  #ofThis = new Map<string, number>();

  constructor() {
    diagnostics.subscribe('http.client.request.start', (message) => {
      const { path } = (message as { request: ClientRequest }).request;
      if (path === loadPath) this.#mark(written);
    });
    diagnostics.subscribe('http.client.response.finish', (message) => {
      const { path } = (message as { request: ClientRequest }).request;
      if (path === loadPath) this.#mark(loaded);
      if (path === samplePath) this.#mark('canary and first token');
    });
  }

  begin(): void {
    this.#last = performance.now();
    this.#ofThis = new Map();
  }

  async during<T>(stage: string, work: Promise<T>): Promise<T> {
    const result = await work;
    this.#mark(stage);
    return result;
  }

  end(): void {
    for (const [stage, seconds] of this.#ofThis) {
      this.#seconds.set(stage, [...(this.#seconds.get(stage) ?? []), seconds]);
    }
  }

  /** Of each version. */
  get secondsUntilLoaded(): number[] {
    const parts = [fetched, written, loaded].map((stage) => this.#seconds.get(stage) ?? []);
    return parts[0]!.map((_, version) => parts.reduce((sum, part) => sum + part[version]!, 0));
  }

  lines(): string[] {
    return Array.from(this.#seconds, ([stage, seconds]) => {
      const [median, most] = [0.5, 0.99].map((q) => quantileOf(seconds, q).toFixed(3));
      return `    ${stage}: median ${median} s, 99 % ${most} s`;
    });
  }

  #mark(stage: string): void {
    const now = performance.now();
    this.#ofThis.set(stage, (this.#ofThis.get(stage) ?? 0) + (now - this.#last) / 1_000);
    this.#last = now;
  }
}

const fetched = 'fetched';
const written = 'checked and written';
const loaded = 'loaded by vLLM';
const loadPath = '/v1/load_lora_adapter';
const samplePath = '/inference/v1/generate';

import { join } from 'node:path';
import { CanaryCheck } from '../../../actor/canary-check.js';
import { CanaryNotReproduced } from '../../../actor/sampler/refusal.js';
import { connectEngine } from '../../../actor/sampler/connect-engine.js';
import { EngineSampler } from '../../../actor/sampler/engine-sampler.js';
import { CanarySource } from '../../../learner/publish/canary-source.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import { startLocalBackend } from '../../../local-backend/local-backend.js';
import { embeddedModelPath, readModelDirectory } from '../../../shared/model/model-directory.js';
import type { ModelConfig } from '../../../shared/model/model-config.js';
import type { GroupRequest } from '../../../shared/model/rollout-draft.js';
import { loadTokenizer } from '../../../shared/model/tokenizer.js';
import { promptTokens } from '../../../shared/tasks/prompt.js';
import { openTask } from '../../../shared/tasks/registry.js';
import { TinkerClient } from '../../../shared/tinker/client.js';
import type { TrainingRun } from '../../../shared/tinker/training-run.js';
import { unproven } from '../../actor/values.js';
import { silent } from '../../support/log.js';
import { runConfig } from '../../support/messages.js';
import { adam, baseModel, datum } from '../tuft/scene.js';
import { atLeast, atMost, type SuiteContext } from '../suite.js';
import { PublishedAdapters } from './published-adapters.js';

const rank = 8;
const apiKey = 'tml-compat-key';
const problems = 8;
/** Versions that are loaded one after the other; ENGINE_LOADS=1000 takes an hour or two. */
export const timedVersions = Number(process.env['ENGINE_LOADS'] ?? 20);

/**
 * Compares the logprobs that an engine reports for its own samples with those of the local backend, for the base policy
 * and for one that was trained a little. Then loads versions as a run publishes them.
 */
export async function engineExactness(
  context: SuiteContext,
  { kind, url }: { readonly kind: 'vllm' | 'sglang'; readonly url: string },
): Promise<void> {
  const { signal, report } = context;
  await using backend = await startLocalBackend({
    ...{ host: '127.0.0.1', port: 0, apiKey, threads: 1, log: silent },
    ...{ modelDir: embeddedModelPath, modelName: baseModel },
    checkpointDir: join(context.folder, 'checkpoints'),
  });
  await using learner = await TinkerClient.connect({
    ...{ baseUrl: backend.url, apiKey, log: silent, signal },
  });
  const run = await learner.createLoraModel({ baseModel, rank, seed: 0 });
  const adapters = new PublishedAdapters();
  const { config: model } = await readModelDirectory(embeddedModelPath);
  const requests = await groupRequests(model);
  const [{ prompt, count }] = requests as [GroupRequest];
  await using engine = await connectEngine({
    ...{ kind, urls: [url], apiKey: undefined, adapterDir: context.folder },
    ...{ run: 'exactness', actor: 'compat', maxLoras: undefined, model, rank },
    ...{ groupSize: count, maxStepsOffPolicy: 4, temperature: 1, prompt },
    adapters,
    ...{ log: silent, signal, waitingFor: () => undefined },
  });
  using place = engine.place();
  const base = await learner.createSamplingSession(await run.saveWeightsForSampler('v0'));
  for (const version of [0, 1]) {
    if (version === 1) await trainALittle(run);
    const path = await run.saveWeightsForSampler(`w${version}`);
    const session = await learner.createSamplingSession(path);
    const { adapter, alpha } = await learner.downloadAdapter(path);
    const published = adapters.publish(version, adapter, { rank, alpha });
    await engine.load(published, unproven, signal);
    let [largest, worst, toBase, compared] = [0, 0, 0, 0];
    for (const request of requests) {
      for (const { tokens, logprobs } of await place.generate(version, request, 300_000, signal)) {
        const whole = Int32Array.of(...request.prompt, ...tokens);
        const [own, others] = await Promise.all(
          [session, base].map((each) => learner.sampler(each).logprobs(whole)),
        );
        compared += tokens.length;
        logprobs.forEach((logprob, i) => {
          const index = request.prompt.length + i;
          const distance = Math.abs(logprob - own![index]!);
          if (distance > largest) [largest, worst] = [distance, logprob];
          toBase = Math.max(toBase, Math.abs(logprob - others![index]!));
        });
      }
    }
    context.note(
      `  version ${version}: ${compared} tokens, the largest distance at a logprob of ${worst}`,
    );
    report(atMost(`engine and local backend, version ${version}: largest distance`, largest, 2e-5));
    if (version === 1) report(atLeast('version 1 and base policy: largest distance', toBase, 0.1));
  }

  await timeLoads();

  /** Versions as a run publishes them, each with a canary that the real server must reproduce. */
  async function timeLoads(): Promise<void> {
    const [{ prompt: text }] = requests as [GroupRequest];
    const source = new CanarySource({
      ...{ run, texts: requests.map((request) => new Int32Array(request.prompt)), temperature: 1 },
      ...{ arithmetic: 'fp32', log: silent, idle: new IdleClock(() => performance.now()) },
    });
    const tokenizer = await loadTokenizer({ path: embeddedModelPath, config: model });
    const sampler = new EngineSampler(engine, {
      ...{ tokenizer, concurrency: 1, segmentTokens: 0, log: silent },
    });
    const canaries = new CanaryCheck(sampler, 'fp32');
    const seconds: number[] = [];
    let [failed, refused] = [0, 0];
    for (let version = 2; version < 2 + timedVersions; version++) {
      await trainOnce(run, 1e-3);
      const path = await run.saveWeightsForSampler(`t${version}`);
      const { adapter, alpha } = await learner.downloadAdapter(path);
      const canary = (await source.request(version)())!;
      const published = { ...adapters.publish(version, adapter, { rank, alpha }), canary };
      const startedAt = performance.now();
      try {
        await sampler.load(published, (...what) => canaries.require(published, ...what), signal);
        const one = { ...requests[0]!, prompt: text, count: 1, maxTokens: 1 };
        await sampler.sample(one, { version, adoptsNewer: false }, signal);
        seconds.push((performance.now() - startedAt) / 1_000);
      } catch (error) {
        signal.throwIfAborted();
        context.note(`  version ${version} was not loaded: ${String(error)}`);
        if (error instanceof CanaryNotReproduced) refused++;
        else failed++;
      }
      sampler.drop(version - 1);
    }
    seconds.sort((a, b) => a - b);
    const quantile = (q: number) => seconds[Math.ceil(q * seconds.length) - 1] ?? NaN;
    context.note(
      `  manifest to first token of ${seconds.length} versions: median ${quantile(0.5).toFixed(2)} s, 99 % ${quantile(0.99).toFixed(2)} s`,
    );
    report(atMost(`failed loads of ${timedVersions} versions with canaries`, failed, 0));
    report(atMost('false alarms of their canaries', refused, 0));
  }
}

/** Groups of the embedded model's own task. */
async function groupRequests(config: ModelConfig): Promise<GroupRequest[]> {
  const tokenizer = await loadTokenizer({ path: embeddedModelPath, config });
  const task = openTask(runConfig().task);
  const { test } = await task.load();
  return test.slice(0, problems).map((problem, seed) => ({
    prompt: promptTokens(task.prompt(problem), tokenizer),
    ...{ count: 16, temperature: 1, maxTokens: 20, seed },
    stopTokenIds: tokenizer.eosTokenIds,
  }));
}

/** Trains until the policy is clearly another one. */
async function trainALittle(run: TrainingRun): Promise<void> {
  for (let i = 0; i < 4; i++) await trainOnce(run, 0.02);
}

async function trainOnce(run: TrainingRun, learningRate: number): Promise<void> {
  const data = [datum([3, 4, 5, 6, 7, 8, 9, 10], 'cross_entropy')];
  await run.forwardBackward(data, 'cross_entropy', {});
  await run.optimStep({ ...adam, learningRate });
}

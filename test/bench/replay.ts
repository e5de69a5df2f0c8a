import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SelectionAudit } from '../../learner/audit/selection-audit.js';
import { VersionAudit } from '../../learner/audit/version-audit.js';
import { CanarySource } from '../../learner/publish/canary-source.js';
import { IdleClock } from '../../learner/step/idle-clock.js';
import { startLocalBackend } from '../../local-backend/local-backend.js';
import { decodeAdapter, type Adapter } from '../../shared/model/lora.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { promptTokens } from '../../shared/tasks/prompt.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import type { AuditedVersion } from '../../learner/audit/version-audit.js';
import type { Certificate } from '../../shared/wire/canary.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { adam, baseModel, datum } from '../compat/tuft/scene.js';
import { silent } from '../support/log.js';
import { ticket } from '../support/messages.js';
import { embeddedSetting } from './canary-policies.js';
import type { Figure } from './main.js';

const groups = Number(process.env['REPLAY_GROUPS'] ?? 24);
const groupSize = 16;
const apiKey = 'tml-bench-key';
const certificate: Certificate = {
  ...{ canaries: [], engine: 'onnxruntime-node 1', arithmetic: 'fp32' },
};

/**
 * Measures the processor time of replaying groups, at the learner, the backend and between them. Each group is of another version, as
 * most of those that a run chooses are, and a third of its rollouts adopt the next one on their way.
 */
export async function benchReplay(): Promise<Figure[]> {
  const folder = await mkdtemp(join(tmpdir(), 'offbeat-bench-'));
  try {
    return await replayGroups(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function replayGroups(checkpointDir: string): Promise<Figure[]> {
  const signal = new AbortController().signal;
  await using backend = await startLocalBackend({
    ...{ host: '127.0.0.1', port: 0, apiKey, threads: 1, log: silent, checkpointDir },
    ...{ modelDir: embeddedModelPath, modelName: baseModel },
  });
  await using client = await TinkerClient.connect({
    ...{ baseUrl: backend.url, apiKey, log: silent, signal },
  });
  const { task, dataset, tokenizer, settings, decoder, texts, directory } = await embeddedSetting();
  const { temperature, maxTokens, loraRank: rank } = settings;
  const { vocabSize } = directory.config;
  const run = await client.createLoraModel({ baseModel, rank, seed: 0 });
  const idle = new IdleClock(() => performance.now());
  const canaries = new CanarySource({
    ...{ run, texts, temperature, arithmetic: 'fp32', log: silent, idle },
  });
  const versions: (AuditedVersion & { adapter: Adapter })[] = [];
  for (let version = 0; version <= groups; version++) {
    const path = await run.saveWeightsForSampler(`v${version}`);
    const canary = await canaries.request(version)();
    const { adapter: bytes, ...scale } = await client.downloadAdapter(path);
    const adapter = decodeAdapter(bytes, scale);
    const samplingSessionId = await client.createSamplingSession(path);
    versions.push({ version, samplingSessionId, canary, adapter });
    const data = [datum([3, 4, 5, 6, 7, 8, 9, 10], 'cross_entropy')];
    await run.forwardBackward(data, 'cross_entropy', {});
    await run.optimStep({ ...adam, learningRate: 1e-3 });
  }
  let differing = 0;
  const selection = new SelectionAudit({
    ...{ share: 1, seed: 0, vocabSize, trainer: 'fp32', isAdapterRounded: false },
    ...{ maxStepsOffPolicy: 4, requireDraws: true, onSelection: 'report', proof: Math.log(1e9) },
    audit: {
      isQuarantined: () => false,
      convict: () => {
        differing++;
        return Promise.resolve();
      },
    },
    emit: () => Promise.resolve(),
    log: silent,
  });
  const audit = new VersionAudit({
    ...{ client, share: 0, seed: 0, temperature, trainer: 'fp32', selection, log: silent },
    onDeceit: () => Promise.resolve(),
  });
  for (const version of versions) audit.add(version);

  const sampled: RolloutGroup[] = [];
  for (let seed = 0; seed < groups; seed++) {
    const prompt = promptTokens(task.prompt(dataset.train[seed]!), tokenizer);
    const stopTokenIds = tokenizer.eosTokenIds;
    const request = { prompt, count: groupSize, temperature, maxTokens, stopTokenIds, seed };
    let asked = 0;
    const policyOf = () => versions[seed + Number(asked++ >= 9)]!;
    const drawn = await decoder.sampleGroup(request, policyOf);
    const rollouts = drawn.map((one) => ({
      ...one,
      tokens: new Int32Array(one.tokens),
      behaviorLogprobs: new Float32Array(one.behaviorLogprobs),
    }));
    const samplingParams = { temperature, maxTokens, seed };
    sampled.push({
      ...{ v: 1, actor: 'a', promptTokens: new Int32Array(prompt), rollouts, certificate },
      ...{ startedAt: 0, finishedAt: 0 },
      ticket: ticket({ ticketId: `t-${seed}`, groupSize, samplingParams }),
    });
  }
  const of = (kind: (runs: number) => boolean) =>
    sampled.flatMap(({ rollouts }) => rollouts).filter(({ versions: { length } }) => kind(length));
  // The first request starts the sampling thread and makes its graphs, once in a run.
  await audit.consider(sampled[0]!);
  const before = process.cpuUsage();
  const startedAt = performance.now();
  for (const group of sampled.slice(1)) await audit.consider(group);
  const { user, system } = process.cpuUsage(before);
  const each = (ms: number) => ms / (groups - 1);
  return [
    { what: 'groups', value: groups - 1, unit: `of ${groupSize} rollouts` },
    { what: 'rollouts that adopt a version', value: of((runs) => runs > 1).length, unit: '' },
    { what: 'processor time of a group', value: each((user + system) / 1_000), unit: 'ms' },
    { what: 'from beginning to end', value: each(performance.now() - startedAt), unit: 'ms' },
    { what: 'groups that differ', value: differing, unit: '' },
  ];
}

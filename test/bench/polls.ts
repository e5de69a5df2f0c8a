import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EngineSampler } from '../../actor/sampler/engine-sampler.js';
import { TinkerEngine } from '../../actor/sampler/tinker-engine.js';
import { startLocalBackend } from '../../local-backend/local-backend.js';
import { checkModelDirectory, embeddedModelPath } from '../../shared/model/model-directory.js';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import { manifest, unproven } from '../actor/values.js';
import { silent } from '../support/log.js';
import type { Figure } from './main.js';

const [groups, inFlight, groupSize] = [64, 8, 16];
const apiKey = 'tml-bench-key';
const modelName = 'base';
const { signal } = new AbortController();

/**
 * What an actor with `--sampler tinker` asks of the embedded backend, 8 groups of 16 in flight: with one poll for each
 * sample and with one for all; a backend may hold polls for 30 s or answer them at once.
 */
export async function benchPolls(): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const pollMs of [30_000, 50]) {
    for (const isShared of [false, true]) {
      const { requests, open } = await countPolls(pollMs, isShared);
      const polls = `${isShared ? 'one poll for all' : 'a poll a sample'}, held ${pollMs / 1_000} s`;
      figures.push({ what: `${polls}: requests a group`, value: requests, unit: '' });
      figures.push({ what: `${polls}: polls open, mean`, value: open, unit: '' });
    }
  }
  return figures;
}

async function countPolls(pollMs: number, isShared: boolean) {
  const folder = await mkdtemp(join(tmpdir(), 'offbeat-polls-'));
  await using backend = await startLocalBackend({
    ...{ host: '127.0.0.1', port: 0, apiKey, modelDir: embeddedModelPath, modelName },
    ...{ checkpointDir: folder, threads: 2, pollMs, log: silent },
  });
  const tokenizer = await loadTokenizer(await checkModelDirectory(embeddedModelPath));
  const traffic = new Traffic(isShared);
  const where = { baseUrl: backend.url, apiKey, log: silent, signal };
  await using learner = await TinkerClient.connect(where);
  const run = await learner.createLoraModel({ baseModel: modelName, rank: 8 });
  const samplerPath = await run.saveWeightsForSampler('bench');
  const samplingSessionId = await learner.createSamplingSession(samplerPath);
  const engine = await TinkerEngine.connect({ ...where, modelName, fetch: traffic.fetch });
  const settings = { tokenizer, concurrency: inFlight, segmentTokens: 0, log: silent };
  await using sampler = new EngineSampler(engine, settings);
  await sampler.load(manifest(0, { samplerPath, samplingSessionId }), unproven, signal);
  traffic.reset();
  const startedAt = performance.now();
  let next = 0;
  const sampleGroups = async () => {
    while (next < groups) {
      const seed = next++;
      const prompt = tokenizer.encode(`${1 + (seed % 50)} 7 12=${100 + seed}:`);
      const request = { prompt, count: groupSize, temperature: 1, maxTokens: 20, seed };
      const policy = { version: 0, adoptsNewer: false };
      await sampler.sample({ ...request, stopTokenIds: [] }, policy, signal);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, sampleGroups));
  const elapsedMs = performance.now() - startedAt;
  await rm(folder, { recursive: true });
  return { requests: traffic.requests / groups, open: traffic.openMs / elapsedMs };
}

/** The requests of a client, without its heartbeats, and how long its polls were open. */
class Traffic {
  requests = 0;
  openMs = 0;

  constructor(private readonly isShared: boolean) {}

  reset(): void {
    this.requests = 0;
    this.openMs = 0;
  }

  readonly fetch: typeof fetch = async (input, init) => {
    const url = input instanceof Request ? input.url : String(input);
    const startedAt = performance.now();
    const response = await fetch(input, init);
    if (url.endsWith('session_heartbeat')) return response;
    this.requests++;
    if (/retrieve_futures?$/.test(url)) this.openMs += performance.now() - startedAt;
    if (this.isShared || !url.endsWith('client/config')) return response;
    const config = (await response.json()) as object;
    return Response.json({ ...config, sample_use_retrieve_futures: false });
  };
}

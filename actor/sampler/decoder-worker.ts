/**
 * The worker thread that owns the model. Sampling blocks it, so during sampling it receives pending
 * calls between two tokens; this is how a new version is adopted in flight.
 */
import { parentPort } from 'node:worker_threads';
import { env } from 'onnxruntime-node';
import { Decoder, type Policy } from '../../shared/model/decoder.js';
import type { TokenScores } from '../../shared/rl/canary.js';
import { checkAdapter, decodeAdapter } from '../../shared/model/lora.js';
import { checkModelDirectory } from '../../shared/model/model-directory.js';
import { rowsAtOnce } from '../../shared/model/parameters.js';
import { WaveQueue } from '../../shared/model/wave-queue.js';
import { serveCalls } from '../../shared/service/worker-calls.js';
import { onnxEngine } from '../../shared/wire/canary.js';
import type { GroupRequest, OnAdoption, SampledRollout } from '../../shared/model/rollout-draft.js';
import type { CanaryTexts } from './canary-scores.js';
import { forcedTexts, scoresOfForced } from './canary-scores.js';
import { joinsWave, type PolicyChoice } from './sampler.js';

/** The calls of the decoder thread; each runs as it arrives. */
export interface DecoderCalls {
  /** Must be the first call. @returns the name and release of what computes. @throws {UserError} on a broken model directory. */
  start(input: { modelPath: string; threads: number; onAdoption: OnAdoption }): Promise<string>;
  load(input: { version: number; safetensors: Uint8Array; rank: number; alpha: number }): void;
  /** The logprobs of a canary's tokens under a loaded version, in the graphs that sample. */
  score(input: { version: number; canary: CanaryTexts }): Promise<TokenScores>;
  /** Lets groups sample with a loaded version. */
  admit(version: number): void;
  drop(version: number): void;
  /** Forgets weights that were loaded and not proven. A version that was admitted before keeps its own. */
  discard(version: number): void;
  /** @returns the rollouts, or how many tokens were drawn before `abandon` ended the group. */
  sample(input: QueuedGroup): Promise<SampledRollout[] | { wastedTokens: number }>;
  /** Ends a group between two tokens, by its id. */
  abandon(id: number): void;
}

/** Sent once a second while texts are read and tokens drawn, or when the next tokens of these groups use another version. */
export type DecoderEvent = 'alive' | { readonly ids: readonly number[]; readonly version: number };

interface QueuedGroup {
  readonly id: number;
  readonly request: GroupRequest;
  readonly policy: PolicyChoice;
}

/** A group and the policy that it started with; it keeps that policy even if it is dropped meanwhile. */
interface StartedGroup extends QueuedGroup {
  readonly weights: Policy;
  readonly abandonment: { isRequested: boolean; wastedTokens: number };
}

if (parentPort === null) throw new Error('decoder-worker runs as a worker thread only');
let started:
  | { readonly decoder: Decoder; readonly maxRows: number; readonly onAdoption: OnAdoption }
  | undefined;
const unproven = new Map<number, Policy>(); // loaded and not admitted yet
const admitted = new Map<number, Policy>(); // to sample with
const groups = new Map<number, StartedGroup>(); // by id: waiting and in progress
const queue = new WaveQueue(
  (group: StartedGroup, wave) => joinsWave(group, wave, running().maxRows),
  sampleWave,
);
const aliveEveryMs = 1_000;
let aliveAt = 0; // time of the last report, in ms

function running(): NonNullable<typeof started> {
  if (started === undefined) throw new Error('the decoder has not been started');
  return started;
}

const calls: DecoderCalls = {
  async start({ modelPath, threads, onAdoption }) {
    const decoder = Decoder.of(await checkModelDirectory(modelPath), { threads });
    started = { decoder, maxRows: rowsAtOnce(decoder.config), onAdoption };
    return `${onnxEngine} ${env.versions.node ?? 'of an unknown release'}`;
  },
  load({ version, safetensors, ...scale }) {
    const adapter = decodeAdapter(safetensors, scale);
    checkAdapter(adapter, running().decoder.config);
    unproven.set(version, { version, adapter });
  },
  async score({ version, canary }) {
    const policy = unproven.get(version);
    if (policy === undefined) throw new Error(`policy version ${version} is not loaded`);
    const texts = forcedTexts(canary);
    const requests = texts.map(({ request }) => request);
    const reportAlive = aliveReports();
    const next = () => {
      reportAlive();
      return policy;
    };
    const { decoder } = running();
    const sampled = await decoder.sampleGroups(requests, next, { onRead: reportAlive });
    return scoresOfForced(
      texts,
      sampled.map((rollouts) => rollouts![0]!),
    );
  },
  admit(version) {
    const policy = unproven.get(version);
    if (policy === undefined) throw new Error(`policy version ${version} is not loaded`);
    unproven.delete(version);
    admitted.set(version, policy);
  },
  drop(version) {
    unproven.delete(version);
    admitted.delete(version);
  },
  discard(version) {
    unproven.delete(version);
  },
  async sample(group) {
    const { id, policy } = group;
    const weights = admitted.get(policy.version);
    if (weights === undefined) throw new Error(`policy version ${policy.version} is not admitted`);
    const mine = { ...group, weights, abandonment: { isRequested: false, wastedTokens: 0 } };
    groups.set(id, mine);
    try {
      const sampled = queue.add(mine);
      void queue.serve();
      return await sampled;
    } finally {
      groups.delete(id);
    }
  },
  abandon(id) {
    const group = groups.get(id);
    if (group === undefined) return;
    group.abandonment.isRequested = true;
    queue.withdraw(group, { wastedTokens: 0 });
  },
};
const thread = serveCalls<DecoderCalls, DecoderEvent>(parentPort, calls, { isConcurrent: true });

async function sampleWave(
  wave: readonly StartedGroup[],
): Promise<(SampledRollout[] | { wastedTokens: number })[]> {
  const groupOf = new Map(wave.map((group) => [group.request, group]));
  const ids = wave.map(({ id }) => id);
  const { adoptsNewer } = wave[0]!.policy;
  let policy = wave.map(({ weights }) => weights).reduce(newerOf);
  let reported: Policy | undefined;
  const reportAlive = aliveReports();
  const { decoder, onAdoption } = running();
  const sampled = await decoder.sampleGroups([...groupOf.keys()], nextPolicy, {
    isWanted,
    onAdoption,
    onRead: reportAlive,
  });
  return wave.map(({ abandonment: { wastedTokens } }, i) => sampled[i] ?? { wastedTokens });

  /** The policy of the next token; handles the calls that have arrived since the last one. */
  function nextPolicy(): Policy {
    thread.drain();
    reportAlive();
    if (adoptsNewer) policy = [...admitted.values()].reduce(newerOf, policy);
    if (policy !== reported) {
      thread.emit({ ids, version: policy.version });
      reported = policy;
    }
    return policy;
  }

  function isWanted(request: GroupRequest, tokens: number): boolean {
    const { abandonment } = groupOf.get(request)!;
    if (abandonment.isRequested) abandonment.wastedTokens = tokens;
    return !abandonment.isRequested;
  }
}

/**
 * Returns a function to call before each token and after each part of the texts that is read, which reports at most
 * once a second that the decoder gets on. Its first call reports nothing: no text is read yet, nor perhaps the weights.
 */
function aliveReports(): () => void {
  let hasBegun = false;
  return () => {
    if (hasBegun && performance.now() - aliveAt >= aliveEveryMs) {
      aliveAt = performance.now();
      thread.emit('alive');
    }
    hasBegun = true;
  };
}

function newerOf(a: Policy, b: Policy): Policy {
  return b.version > a.version ? b : a;
}

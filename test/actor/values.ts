import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { Rollout } from '../../shared/wire/rollout-group.js';
import type { Ticket } from '../../shared/wire/ticket.js';

/** A valid ticket, but for what the test names. */
export function ticket(named: Partial<Ticket> = {}): Ticket {
  return {
    v: 1,
    ticketId: 't-0',
    order: 0,
    problemId: 'train-0',
    split: 'train',
    groupSize: 2,
    samplingParams: { temperature: 1, maxTokens: 8, seed: 7 },
    issuedAtVersion: 0,
    attempt: 0,
    ...named,
  };
}

/** A valid manifest of a version that is sampled by the backend, but for what the test names. */
export function manifest(version: number, named: Partial<PolicyManifest> = {}): PolicyManifest {
  return {
    v: 1,
    version,
    samplerPath: `tinker://run/sampler_weights/v${version}`,
    samplingSessionId: `session-${version}`,
    smallestUsefulVersion: 0,
    publishedAt: 0,
    ...named,
  };
}

/** A rollout of three tokens by version 0, but for what the test names. */
export function rollout(named: Partial<Rollout> = {}): Rollout {
  return {
    tokens: Int32Array.of(5, 6, 2),
    behaviorLogprobs: Float32Array.of(-0.5, -0.25, -1),
    versions: [[0, 3]],
    stopReason: 'stop',
    ...named,
  };
}

import type { z } from 'zod';
import { ActorLease } from '../../shared/wire/actor-lease.js';
import type { Canary } from '../../shared/wire/canary.js';
import { Checkpoint, LeaderLease } from '../../shared/wire/ledger.js';
import { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { RunEvent } from '../../shared/wire/run-event.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import {
  actorLease,
  checkpoint,
  evalResult,
  rolloutGroup,
  runConfig,
  scoredGroup,
  ticket,
} from './messages.js';

const canary: Canary = {
  temperature: 1,
  arithmetic: 'fp32',
  texts: [Int32Array.of(3, 4, 5), Int32Array.of(6, 7)],
  places: [
    [0, 2],
    [1, 1],
  ],
  logprobs: Float32Array.of(-0.5, -2),
};

const finding = { version: 3, difference: 0.5, band: 1e-3, mean: 0.1, meanBand: 2e-4, place: 1 };
const refused = { ...finding, attempts: 2 };

export const manifest: PolicyManifest = {
  v: 1,
  version: 3,
  samplerPath: 'tinker://run/sampler/3',
  samplingSessionId: 's-1',
  adapter: {
    ...{ uri: 'https://store.example/adapter-3?signature=s', expiresAt: 9, format: 'BF16' },
    ...{ files: 'tinker://run/external_weights/3', sha256: 'a'.repeat(64), bytes: 10 },
    ...{ rank: 4, alpha: 8 },
  },
  canary,
  smallestUsefulVersion: 1,
  consumedBelow: 5,
  quarantined: ['actor-1'],
  publishedAt: 5,
};

const { adapter: _adapter, ...bare } = manifest;
const withoutAdapter: PolicyManifest = { ...bare, adapterOnRequest: true };

const quarantine = { actor: 'actor-1', gap: 1, bound: 0.1, groups: 4, version: 2 };
const step = { step: 1, version: 1, metrics: { loss: 0.5 } };

/** One valid message of every kind that processes exchange. */
export const everyMessage: readonly { name: string; schema: z.ZodType; message: unknown }[] = [
  { name: 'ticket', schema: Ticket, message: ticket() },
  { name: 'pinned ticket', schema: Ticket, message: ticket({ split: 'eval', pinnedVersion: 2 }) },
  { name: 'rollout group', schema: RolloutGroup, message: rolloutGroup() },
  {
    name: 'certified rollout group',
    schema: RolloutGroup,
    message: rolloutGroup({
      certificate: {
        canaries: [[3, 'c'.repeat(64)]],
        engine: 'onnxruntime-node 1.30.0',
        arithmetic: 'fp32',
      },
    }),
  },
  { name: 'scored group', schema: ScoredGroup, message: scoredGroup() },
  { name: 'checkpoint', schema: Checkpoint, message: checkpoint() },
  { name: 'leader lease', schema: LeaderLease, message: { v: 1, holder: 'a', renewedAt: 1 } },
  { name: 'policy manifest', schema: PolicyManifest, message: manifest },
  {
    name: 'policy manifest whose adapter is published on request',
    schema: PolicyManifest,
    message: withoutAdapter,
  },
  { name: 'actor lease', schema: ActorLease, message: actorLease() },
  {
    name: 'lease of an actor that refuses a version',
    schema: ActorLease,
    message: actorLease({ refused }),
  },
  {
    name: 'lease of an actor that samples with an engine',
    schema: ActorLease,
    message: actorLease({
      engines: [
        { url: 'http://gpu:8000', release: '0.32.0', running: 4, adapters: 2, slots: 6 },
        { url: 'http://gpu:8001', trouble: 'down', kvUsage: 0.5, adapters: 0, slots: 6 },
        { url: 'http://gpu:8002', trouble: 'canary', refused, adapters: 0, slots: 6 },
      ],
    }),
  },
  { name: 'run configuration', schema: RunConfig, message: runConfig() },
  ...[
    { kind: 'step', ...step },
    { kind: 'eval', result: evalResult() },
    { kind: 'quarantine', ...quarantine },
    { kind: 'refusal', actor: 'actor-1', ...finding },
    { kind: 'refusal', actor: 'actor-1', engine: 'http://gpu:8000', ...finding },
    {
      kind: 'suspicion',
      actor: 'a',
      why: 'solve_rate',
      nats: 21,
      bound: 20.7,
      groups: 9,
      version: 3,
    },
    { kind: 'version', version: 3 },
    { kind: 'leader', holder: 'learner-0' },
    { kind: 'checkpoint', checkpoint: checkpoint({ serial: 2 }) },
    { kind: 'end', summary: { steps: 3 } },
  ].map((event) => ({
    name: `event of kind ${event.kind}`,
    schema: RunEvent,
    message: { v: 1, at: 1, ...event },
  })),
];

import type { Backlog } from '../../shared/broker/backlog.js';
import type { ActorLease } from '../../shared/wire/actor-lease.js';
import { flowOf, type Snapshot } from '../../cli/dashboard/run/flow.js';
import type { StepRow } from '../../cli/read-journal.js';
import type { RunView } from '../../cli/dashboard/run/run-view.js';
import { sampledGroup, type SampledGroup } from '../../cli/dashboard/run/sampled-group.js';
import { actorLease, rolloutGroup, runConfig, scoredGroup, ticket } from './messages.js';

/** The contents of the run's queues, and the number of messages that each ever received. */
export function backlog(published: { tickets: number; rollouts: number; scored: number }): Backlog {
  const stream = (count: number) => ({ messages: 3, oldestAgeSeconds: 1.5, published: count });
  const consumer = { pending: 2, ackPending: 1 };
  return {
    streams: {
      tickets: stream(published.tickets),
      rollouts: stream(published.rollouts),
      scored: stream(published.scored),
      dead: { messages: 0, oldestAgeSeconds: 0, published: 0 },
    },
    consumers: {
      'tickets.train': consumer,
      'tickets.eval': { pending: 0, ackPending: 0 },
      rollouts: consumer,
      'scored.train': consumer,
      'scored.eval': { pending: 0, ackPending: 0 },
    },
  };
}

/** The run at second `at`: 4 tickets, 3 groups of rollouts and 2 scored ones came in each second. */
export function snapshot(at: number, leases: readonly ActorLease[] = [], version = 7): Snapshot {
  return {
    at: 1_000 * at,
    backlog: backlog({ tickets: 4 * at, rollouts: 3 * at, scored: 2 * at }),
    leases,
    leasesSeen: leases,
    manifest: {
      v: 1,
      version,
      samplerPath: 'tinker://run/sampler/7',
      smallestUsefulVersion: 0,
      publishedAt: 0,
    },
    leader: { v: 1, holder: 'learner', renewedAt: 1_000 * at },
  };
}

/** The actor after this many seconds, each with 2 groups sampled and half a second without a ticket. */
export function leaseAfter(seconds: number, over: Partial<ActorLease> = {}): ActorLease {
  return actorLease({
    groups: 2 * seconds,
    idleSeconds: { ticket: seconds / 2, policy: 0, publish: 0 },
    version: 6,
    inFlight: 3,
    lastSeenAt: 1_000 * seconds,
    ...over,
  });
}

/** Step `step` of an improving run. */
export function stepPoint(step: number, metrics: Readonly<Record<string, number>> = {}): StepRow {
  return {
    step,
    version: step,
    at: 2_000 * step,
    metrics: {
      'env/all/reward/total': step / 100,
      'env/all/correct': step / 200,
      'staleness/mean': 1.5,
      'scored/groups': 20,
      'scored/rollouts': 320,
      seconds: 2,
      idle_seconds: 0.5,
      'idle/groups': step / 2,
      'groups/issued': 20 * step,
      ...metrics,
    },
  };
}

/** A group in which both answers are `answer`, one token per character. */
export function sampled(
  answer: string,
  over: { prompt?: string; ticketId?: string } = {},
): SampledGroup {
  const { prompt = '3 7 21=84:', ticketId = 't-0' } = over;
  const characters = Array.from(answer);
  const rollout = {
    tokens: Int32Array.from(characters, (_, i) => i),
    behaviorLogprobs: Float32Array.from(characters, (_, i) => -i / 4),
    versions: [[6, characters.length] as [number, number]],
    stopReason: 'stop' as const,
  };
  const group = rolloutGroup({
    ticket: ticket({ ticketId, problemId: '3,7,21=84' }),
    promptTokens: Int32Array.of(-1),
    rollouts: [rollout, rollout],
  });
  const decode = (tokens: ArrayLike<number>) =>
    Array.from(tokens, (token) => (token < 0 ? prompt : characters[token]!)).join('');
  return sampledGroup(scoredGroup({ group }), decode);
}

/** A run of two actors at its fifth step. */
export function runView(over: Partial<RunView> = {}): RunView {
  const snapshots = [0, 10].map((at) =>
    snapshot(at, [leaseAfter(at), leaseAfter(at, { actor: 'actor-1' })]),
  );
  return {
    run: 'test',
    at: 10_000,
    phase: 'live',
    config: runConfig({ maxStepsOffPolicy: 2 }),
    history: {
      steps: [1, 2, 3, 4, 5].map((step) => stepPoint(step)),
      evals: [0, 5].map((version) => ({
        ...{ version, problems: 8, samples: 2, greedy: 0.5, passAt: {} },
        sampled: 0.25 + version / 100,
      })),
      quarantined: [],
      summary: undefined,
    },
    flow: flowOf(snapshots),
    samples: [sampled('7*3*4')],
    ...over,
  };
}

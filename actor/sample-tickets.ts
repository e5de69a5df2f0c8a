import { Counter, Histogram } from 'prom-client';
import type { Broker } from '../shared/broker/broker.js';
import { consume } from '../shared/broker/consume.js';
import { requestMs } from '../shared/broker/puller.js';
import { UserError } from '../shared/base/errors.js';
import { aborted, TaskScope } from '../shared/base/task-scope.js';
import { countDroppedGroup, countWastedTokens } from '../shared/service/telemetry/drops.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import type { WasteReason } from '../shared/wire/actor-lease.js';
import { type Split, Ticket, ticketAttributes } from '../shared/wire/ticket.js';
import { startSpan, type Span } from '../shared/service/telemetry/tracing.js';
import { RolloutGroup, tokenCount, versionsIn } from '../shared/wire/rollout-group.js';
import { messageIdOf } from '../shared/wire/ticket-ids.js';
import type { Activity } from './activity.js';
import { GroupStale, TicketEnded, type EarlyCancel } from './early-cancel.js';
import { groupRequest, type PromptSource, rolloutGroup } from './group-messages.js';
import type { CanaryCheck } from './canary-check.js';
import type { Hold } from './held-versions.js';
import type { PolicyFollower } from './policy-follower.js';
import type { Sampler } from './sampler/sampler.js';

interface SampleTicketsOptions {
  readonly broker: Broker;
  readonly actor: string;
  readonly prompts: PromptSource;
  readonly sampler: Sampler;
  readonly policies: PolicyFollower;
  readonly canaries: Pick<CanaryCheck, 'certificate'>;
  readonly activity: Activity;
  readonly earlyCancel: EarlyCancel;
  readonly inFlightUpdates: boolean;
  readonly splits: readonly Split[]; // splits whose tickets to take
  readonly log: Logger;
  readonly onGroup: () => void; // called after each delivered group
}

const sampledTokens = new Counter({
  name: 'rl_actor_tokens_total',
  help: 'Tokens that this actor sampled, without prompts.',
  labelNames: ['split'],
});
const sampledRollouts = new Counter({
  name: 'rl_actor_rollouts_total',
  help: 'Rollouts that this actor sampled.',
  labelNames: ['split'],
});
const groupSeconds = new Histogram({
  name: 'rl_actor_group_seconds',
  help: 'Time to sample one group, from its first token to its last.',
  labelNames: ['split'],
  buckets: [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300],
});

/** Samples tickets whenever the sampler reproduces the newest canary; while it does not, they go to other actors. */
export async function sampleWhileTrusted(
  options: SampleTicketsOptions,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    const trust = await options.policies.trusted(signal);
    if (signal.aborted) return;
    await sampleTickets(options, AbortSignal.any([signal, trust]));
  }
}

/**
 * Leases tickets and delivers the group of each, until `signal` aborts. A ticket is acknowledged after
 * its group is stored; if this actor stops before, another actor takes the ticket. A ticket whose group
 * a new version has made useless goes to the learner as a dead letter, so that the learner hears
 * of it even after a crash; a ticket that has already ended is acknowledged unsampled.
 */
export async function sampleTickets(
  options: SampleTicketsOptions,
  signal: AbortSignal,
): Promise<void> {
  const { broker, actor, sampler, policies, activity, log, onGroup } = options;
  const subject = broker.names.subjects.rollouts(actor);
  const { limit } = sampler; // the splits share this limit, and each may lease that many tickets
  const refusal = new AbortController(); // its reason: what the user must fix before any ticket works
  const serve = (split: Split) => (ending: AbortSignal) =>
    consume(
      broker,
      `tickets.${split}`,
      Ticket,
      {
        ...{ signal: ending, log, stage: 'actor', concurrency: limit.most },
        ready: async (waiting, lane) => {
          await limit.above(lane, waiting);
          await sampler.ready(waiting);
          await policies.loadable(waiting);
        },
      },
      async (delivery) => {
        const { value: ticket, deliveryCount, trace } = delivery;
        // The ticket was requested before an outage of the sampler, or before newer versions could not be loaded. This
        // actor's other requests are still open and would get it again and again, until its tries are used up. So it
        // is returned with a delay after which they have ended.
        if (sampler.trouble !== undefined || policies.isStuck) {
          delivery.nak(requestMs);
          return;
        }
        try {
          const group = await sampleTicket(ticket, options, ending);
          using _publishing = activity.enter('publish');
          const msgId = messageIdOf(ticket);
          const span = sampleSpan(broker.run, group, deliveryCount, trace);
          const sending = { msgId, trace: span?.traceparent, signal: ending };
          await broker.publish(subject, RolloutGroup, group, sending);
          onGroup();
        } catch (error) {
          if (error instanceof UserError) refusal.abort(error);
          if (!(error instanceof TicketEnded)) throw error; // `consume` dead-letters a GroupStale
          log.info(
            { ticketId: ticket.ticketId, reason: error.message },
            'ticket dropped: it has already ended',
          );
          countDroppedGroup('actor', 'duplicate');
        }
      },
    );
  await TaskScope.run(signal, [
    ...options.splits.map(serve),
    async (ending) => {
      await aborted(AbortSignal.any([ending, refusal.signal]));
      refusal.signal.throwIfAborted();
    },
  ]);
}

/** The group of one ticket. Rejects soon after `signal` aborts or the ticket is cancelled. */
async function sampleTicket(
  ticket: Ticket,
  options: SampleTicketsOptions,
  signal: AbortSignal,
): Promise<RolloutGroup> {
  const { actor, prompts, sampler, policies, activity, earlyCancel, inFlightUpdates } = options;
  using work = earlyCancel.watch(ticket, signal);
  work.signal.throwIfAborted();
  const request = groupRequest(ticket, prompts);
  using pinned = await awaitPolicy(ticket, options, work.signal);
  using _turn = await sampler.limit.enter(work.signal);
  // The newest may be another than before the wait for a turn.
  using policy = pinned ?? (await policies.holdAtLeast(ticket.issuedAtVersion, work.signal));
  using _sampling = activity.enter('sampling');
  const startedAt = Date.now();
  const choice = {
    version: policy.manifest.version,
    adoptsNewer: inFlightUpdates && ticket.pinnedVersion === undefined,
  };
  const progress = {
    onDraw: (version: number) => {
      work.onDraw(version);
      policies.onDraw(version);
      // An answer may outlast many versions: a group that goes on with a newer one needs its first no longer.
      if (version > choice.version) policy[Symbol.dispose]();
    },
    noneDrawn: () => {
      work.noneDrawn();
    },
    wasted: (tokens: number) => {
      countWastedTokens(wasteReason(work.signal.reason), tokens);
    },
  };
  const sampled = sampler.sample(request, choice, work.signal, progress);
  const rollouts = await withAbortReason(work.signal, sampled);
  const finishedAt = Date.now();
  const { prompt } = request;
  const certificate = options.canaries.certificate(versionsIn(rollouts));
  const group = rolloutGroup({
    ...{ ticket, actor, prompt, rollouts, certificate, startedAt, finishedAt },
  });

  const labels = { split: ticket.split };
  sampledTokens.inc(labels, tokenCount(group));
  sampledRollouts.inc(labels, rollouts.length);
  groupSeconds.observe(labels, (finishedAt - startedAt) / 1_000);
  return group;
}

/** From the first token to the last. */
function sampleSpan(
  run: string,
  { ticket, actor, rollouts, startedAt, finishedAt }: RolloutGroup,
  deliveryCount: number,
  parent: string | undefined,
): Span | undefined {
  const span = startSpan('sample', () => {
    const versions = rollouts.flatMap((rollout) => rollout.versions.map(([version]) => version));
    return {
      ticket: { run, ticketId: ticket.ticketId },
      parent,
      startedAt,
      attributes: {
        ...ticketAttributes(ticket),
        'offbeat.actor': actor,
        'offbeat.delivery_count': deliveryCount,
        'offbeat.version.oldest': Math.min(...versions),
        'offbeat.version.newest': Math.max(...versions),
      },
    };
  });
  span?.end(finishedAt);
  return span;
}

/** The result of `work`. If it fails after `signal` has aborted, rejects with the signal's reason instead. */
async function withAbortReason<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}

function wasteReason(reason: unknown): WasteReason {
  if (reason instanceof GroupStale) return 'stale';
  return reason instanceof TicketEnded ? 'duplicate' : 'returned'; // to be sampled by another
}

/** Waits for the version that a ticket asks for. @returns a hold if it is pinned to one; any other may still change. */
async function awaitPolicy(
  { pinnedVersion, issuedAtVersion }: Ticket,
  { policies, activity }: SampleTicketsOptions,
  signal: AbortSignal,
): Promise<Hold | undefined> {
  using _waiting = activity.enter('policy');
  if (pinnedVersion !== undefined) return await policies.holdExactly(pinnedVersion, signal);
  await policies.readyFrom(issuedAtVersion, signal);
  return undefined;
}

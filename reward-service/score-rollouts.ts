import type { Broker } from '../shared/broker/broker.js';
import { consume } from '../shared/broker/consume.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import { ticketAttributes } from '../shared/wire/ticket.js';
import { startSpan } from '../shared/service/telemetry/tracing.js';
import { RolloutGroup } from '../shared/wire/rollout-group.js';
import { ScoredGroup } from '../shared/wire/scored-group.js';
import { messageIdOf } from '../shared/wire/ticket-ids.js';
import { GroupRefused, requireOwnSubject } from './check-group.js';
import type { Judge } from './judge.js';
import {
  countScores,
  groupSeconds,
  judgingSeconds,
  refusedGroups,
  scoredGroups,
} from './metrics.js';

interface ScoreRolloutsOptions {
  readonly broker: Broker;
  readonly judge: Judge;
  readonly scorer: string; // the name of this replica
  readonly log: Logger;
  readonly signal: AbortSignal;
}

const concurrency = 8; // groups whose scores are on their way to the stream
const drainMs = 5_000; // time for groups in progress after the signal

/**
 * Scores every group of the run and sends its scores on. After the signal it finishes the groups
 * in progress and takes no new ones. A group is acknowledged when its scores are stored; one that is
 * delivered twice is stored once, by its message id.
 */
export async function scoreRollouts(options: ScoreRolloutsOptions): Promise<void> {
  const { broker, judge, scorer, log, signal } = options;
  const { subjects } = broker.names;
  const drainDeadline = delayed(signal, drainMs);

  await consume(
    broker,
    'rollouts',
    RolloutGroup,
    { signal, log, stage: 'reward', concurrency },
    async ({ value: group, subject, deliveryCount, trace }) => {
      const stopTimer = groupSeconds.startTimer();
      const { ticketId, attempt, split } = group.ticket;
      const span = startSpan('score', () => ({
        ticket: { run: broker.run, ticketId },
        parent: trace,
        attributes: {
          ...ticketAttributes(group.ticket),
          'offbeat.scorer': scorer,
          'offbeat.delivery_count': deliveryCount,
        },
      }));
      const scores = judged(group, subject);
      span?.end();
      const { isDuplicate } = await broker.publish(
        subjects.scored(split),
        ScoredGroup,
        { v: 1, group, scores, scorer, scoredAt: Date.now() },
        { msgId: messageIdOf(group.ticket), trace: span?.traceparent, signal: drainDeadline },
      );
      stopTimer();
      if (isDuplicate) {
        log.info({ ticketId, attempt }, 'group already scored');
        return;
      }
      scoredGroups.inc({ split });
      countScores(scores, 'stream');
    },
  );

  function judged(group: RolloutGroup, subject: string) {
    try {
      requireOwnSubject(group, subject, subjects.rollouts(group.actor));
      const stopTimer = judgingSeconds.startTimer({ source: 'stream' });
      const scores = judge.scoreGroup(group);
      stopTimer();
      return scores;
    } catch (caught) {
      if (caught instanceof GroupRefused) refusedGroups.inc({ reason: caught.reason });
      throw caught;
    }
  }
}

/** A signal that aborts this many milliseconds after `signal`. */
function delayed(signal: AbortSignal, ms: number): AbortSignal {
  const later = new AbortController();
  const abort = () => {
    later.abort(signal.reason);
  };
  signal.addEventListener('abort', () => setTimeout(abort, ms).unref(), { once: true });
  return later.signal;
}

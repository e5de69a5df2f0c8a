import type { Source } from '../../shared/broker/names.js';
import {
  actorReport,
  engineReports,
  type ActorReport,
  type EngineReport,
} from '../existing-run/actor-report.js';
import { hasLearner } from '../existing-run/leases.js';
import { awaitingOf, type RunState } from '../existing-run/run-state.js';
import { waitsOver, waitText, type Waits } from '../existing-run/waits.js';

/** The phase of a run, as seen from outside. */
export type Phase =
  | 'preparing' // no learner has written its configuration yet
  | 'training' // a learner leads it
  | 'ended' // its learner has finished
  | 'stopped'; // unfinished and without a learner: the next one continues from the checkpoint

/** What `offbeat status --json` prints. Times are in seconds, unknown values are null. */
export interface StatusReport {
  readonly run: string;
  readonly at: string; // ISO 8601
  readonly phase: Phase;
  readonly endReason: string | null; // of a run that has ended, as its summary has it: max_minutes
  readonly learner: { readonly holder: string; readonly seenSecondsAgo: number } | null;
  readonly step: number | null;
  readonly version: number | null; // the newest that is published
  readonly publishedSecondsAgo: number | null;
  readonly publishLag: number | null; // in steps
  readonly reward: number | null;
  readonly solved: number | null; // share of the newest step's rollouts
  readonly solvedNew: number | null; // of those of new problems, if the run also rehearses known ones
  readonly solvedRehearsal: number | null;
  readonly staleness: {
    readonly mean: number;
    readonly max: number;
    readonly bound: number;
  } | null;
  readonly rolloutsPerSecond: number | null;
  readonly nll: number | null; // of the examples of the newest step, in nats per token
  readonly epoch: number | null; // passes over the examples
  readonly evaluation: Evaluation | null;
  readonly queues: readonly QueueReport[];
  readonly actors: readonly ActorReport[];
  readonly engines: readonly EngineReport[];
  readonly waits: (Waits & { readonly text: string }) | null;
  readonly deadLetters: { readonly count: number; readonly newest: Letter | null };
}

interface Evaluation {
  readonly version: number;
  readonly sampled: number; // share of held-out problems solved, at the sampling temperature
  readonly greedy: number;
  readonly problems: number;
  readonly secondsAgo: number;
}

export interface QueueReport {
  readonly name: string; // of its consumer, as in metrics
  readonly waiting: number; // not delivered yet
  readonly inHand: number; // delivered and unacknowledged
  readonly awaitingCheckpoint: number; // consumed, but not covered by a checkpoint yet
  readonly oldestSeconds: number; // of its stream
}

interface Letter {
  readonly stage: string;
  readonly reason: string;
  readonly secondsAgo: number;
}

/**
 * The report of one snapshot of the run.
 *
 * @param isStopped whether no process of the run is up; the lease of a learner that was killed may still be valid.
 */
export function reportOf(state: RunState, isStopped = false): StatusReport {
  const { run, at, config, policy, steps, evaluation, newestDeadLetter } = state;
  const leader = isStopped ? undefined : state.leader;
  const ago = (then: number) => Math.max(0, (at - then) / 1_000);
  const newest = steps.at(-1);
  const metrics = newest?.metrics ?? {};
  const known = (name: string) => metrics[name] ?? null;
  const [stalenessMean, stalenessMax] = [known('staleness/mean'), known('staleness/max')];
  const [rollouts, seconds] = [known('scored/rollouts'), known('seconds')];
  const waits = waitsOver(steps);
  const phase = phaseOf(state, isStopped);
  return {
    run,
    at: new Date(at).toISOString(),
    phase,
    endReason: phase === 'ended' ? endReasonOf(state) : null,
    learner:
      leader === undefined
        ? null
        : { holder: leader.holder, seenSecondsAgo: ago(leader.renewedAt) },
    step: newest?.step ?? null,
    version: policy?.version ?? null,
    publishedSecondsAgo: policy === undefined ? null : ago(policy.publishedAt),
    // As of the newest step; its version may have been published since.
    publishLag:
      newest !== undefined && policy !== undefined && policy.version >= newest.version
        ? 0
        : known('publish_lag'),
    reward: known('env/all/reward/total'),
    solved: known('env/all/correct'),
    solvedNew: known('env/new/correct'),
    solvedRehearsal: known('env/rehearsal/correct'),
    staleness:
      stalenessMean === null || stalenessMax === null || config === undefined
        ? null
        : {
            mean: stalenessMean,
            max: stalenessMax,
            bound: known('tickets/bound') ?? config.maxStepsOffPolicy,
          },
    rolloutsPerSecond: rollouts === null || !seconds ? null : rollouts / seconds,
    nll: known('sft/nll'),
    epoch: known('sft/epoch'),
    evaluation:
      evaluation === undefined ? null : evaluationOf(evaluation.result, ago(evaluation.at)),
    queues: queuesOf(state),
    actors: state.actors.map((lease) => actorReport(lease, policy, at)),
    engines: engineReports(state.actors, at),
    waits: waits === undefined ? null : { ...waits, text: waitText(waits) },
    deadLetters: {
      count: state.backlog.streams.dead.messages,
      newest:
        newestDeadLetter === undefined
          ? null
          : {
              stage: newestDeadLetter.stage,
              reason: newestDeadLetter.reason,
              secondsAgo: ago(newestDeadLetter.at),
            },
    },
  };

  function evaluationOf(
    { version, sampled, greedy, problems }: Omit<Evaluation, 'secondsAgo'>,
    secondsAgo: number,
  ): Evaluation {
    return { version, sampled, greedy, problems, secondsAgo };
  }
}

function endReasonOf({ end }: RunState): string | null {
  const reason = end?.summary['reason'];
  return typeof reason === 'string' ? reason : null;
}

function phaseOf({ at, config, leader, lead, steps, end }: RunState, isStopped: boolean): Phase {
  if (config === undefined) return 'preparing';
  if (!isStopped && hasLearner(leader, at)) return 'training';
  if (end === undefined || end.at < (steps.at(-1)?.at ?? 0)) return 'stopped';
  // A learner that ends by itself releases its lease, also one that refuses to resume the run. So one that took the
  // lead after the end and still has its lease was killed before its first step.
  const isKilledResume = leader !== undefined && lead !== undefined && lead.at > end.at;
  return isKilledResume ? 'stopped' : 'ended';
}

/** In the order in which a group goes through them. */
function queuesOf({ backlog: { streams, consumers }, steps }: RunState): QueueReport[] {
  const order: readonly Source[] = [
    'tickets.train',
    'tickets.eval',
    'rollouts',
    'scored.train',
    'scored.eval',
  ];
  return order.map((name) => {
    const stream = name.split('.')[0] as 'tickets' | 'rollouts' | 'scored';
    const { pending, ackPending } = consumers[name];
    const { oldestAgeSeconds } = streams[stream];
    const isEmpty = pending + ackPending === 0;
    const awaitingCheckpoint =
      name === 'scored.train' ? awaitingOf(ackPending, steps.at(-1)?.metrics) : 0;
    return {
      name,
      waiting: pending,
      inHand: ackPending - awaitingCheckpoint,
      awaitingCheckpoint,
      oldestSeconds: isEmpty ? 0 : oldestAgeSeconds,
    };
  });
}

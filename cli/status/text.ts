import { printable } from '../../shared/base/printable.js';
import { wrapped } from '../../shared/service/telemetry/print-error.js';
import { alignedLines } from '../columns.js';
import type { ActorReport, EngineReport } from '../existing-run/actor-report.js';
import { percent, formatSeconds } from '../up/summary.js';
import type { Phase, QueueReport, StatusReport } from './report.js';

const phases: Readonly<Record<Phase, string>> = {
  preparing: 'is being set up; no learner has written its configuration yet',
  training: 'is training',
  ended: 'has ended',
  stopped: 'has no learner; the next one continues from the last checkpoint',
};

const widest = 100; // columns of a sentence

/** How a run ended, by the reason in its summary. */
const ends: Readonly<Record<string, string>> = {
  max_steps: 'all its steps are done',
  max_minutes: 'its time was up',
  stopped: 'it was stopped',
  diverged: 'it was given up, since training diverged',
  no_signal: 'it was given up, since its groups no longer had variance',
};

/** The report as text: paragraphs and two tables. */
export function statusReportText(report: StatusReport): string {
  const { run, phase, endReason, learner, deadLetters, waits } = report;
  const holder =
    learner === null ? '' : `; learner ${learner.holder}, seen ${ago(learner.seenSecondsAgo)}`;
  const end = endReason === null ? '' : `: ${ends[endReason] ?? printable(endReason)}`;
  const paragraphs = [
    [`run ${run} ${phases[phase]}${end}${holder}`, ...progressLines(report)].join('\n'),
    queueTable(report.queues),
    report.actors.length === 0 ? 'no actors' : actorTable(report.actors, phase),
    ...(report.engines.length === 0 ? [] : [engineTable(report.engines)]),
    ...(waits === null
      ? []
      : [
          `who ${phase === 'training' ? 'waits' : 'waited'}, over ${formatSeconds(waits.seconds)} of steps:\n` +
            wrapped(`  ${waits.text}`, widest),
        ]),
    deadLetterText(deadLetters, run),
  ];
  return `${paragraphs.join('\n\n')}\n`;
}

function progressLines(report: StatusReport): string[] {
  const { step, version, publishedSecondsAgo, publishLag, reward, staleness } = report;
  const { solved, solvedNew, solvedRehearsal, rolloutsPerSecond, nll, epoch, evaluation } = report;
  const now = [
    ...(step === null ? ['no step yet'] : [`step ${step}`]),
    ...(version === null ? [] : [`version ${version}, published ${ago(publishedSecondsAgo ?? 0)}`]),
    ...(publishLag === null || publishLag === 0
      ? []
      : [`${counted(publishLag, 'step')} unpublished`]),
  ];
  const measured = [
    ...(reward === null ? [] : [`reward ${reward.toFixed(3)}`]),
    ...(solved === null || solvedNew !== null ? [] : [`solved ${percent(solved)}`]),
    ...(solvedNew === null ? [] : [`solved new ${percent(solvedNew)}`]),
    ...(solvedRehearsal === null ? [] : [`rehearsal ${percent(solvedRehearsal)}`]),
    ...(staleness === null
      ? []
      : [
          `staleness ${staleness.mean.toFixed(2)}, ${staleness.max} at most (bound ${staleness.bound})`,
        ]),
    ...(rolloutsPerSecond === null ? [] : [`${rolloutsPerSecond.toFixed(1)} rollouts/s`]),
    ...(nll === null ? [] : [`nll ${nll.toFixed(3)}`]),
    ...(epoch === null ? [] : [`epoch ${epoch.toFixed(2)}`]),
  ];
  const lines = [now, measured]
    .filter((parts) => parts.length > 0)
    .map((parts) => parts.join('  '));
  if (evaluation !== null) {
    const { version: of, sampled, greedy, problems, secondsAgo } = evaluation;
    lines.push(
      `version ${of}: ${percent(sampled)} of ${problems} held-out problems solved, ${percent(greedy)} greedily (${ago(secondsAgo)})`,
    );
  }
  return lines.map((line) => `  ${line}`);
}

function queueTable(queues: readonly QueueReport[]): string {
  const rows = queues.map(({ name, waiting, inHand, awaitingCheckpoint, oldestSeconds }) => [
    name,
    String(waiting),
    String(inHand),
    // Groups that await a checkpoint are older than those that wait.
    waiting + inHand === 0 || awaitingCheckpoint > 0 ? '-' : formatSeconds(oldestSeconds),
  ]);
  const kept = queues.reduce((sum, queue) => sum + queue.awaitingCheckpoint, 0);
  const note =
    kept === 0
      ? ''
      : `\n${counted(kept, 'consumed group')} more in scored.train: kept until the next checkpoint, not backlog`;
  return `${table([['queue', 'waiting', 'in flight', 'oldest'], ...rows])}${note}`;
}

function counted(count: number, thing: string): string {
  return `${count} ${thing}${count === 1 ? '' : 's'}`;
}

/** Whether an actor ended with its run. */
function isGone({ isLive }: ActorReport, phase: Phase): boolean {
  return !isLive && phase === 'ended';
}

function actorTable(actors: readonly ActorReport[], phase: Phase): string {
  const rows = actors.map((each) => [
    printable(each.actor),
    each.version === null ? '-' : String(each.version),
    each.behind === null ? '?' : String(each.behind),
    String(each.groups),
    isGone(each, phase) ? '-' : `${each.inFlight}/${each.limit}`,
    stateOf(each, phase),
  ]);
  return table([['actor', 'version', 'behind', 'groups', 'in flight', ''], ...rows]);
}

function engineTable(engines: readonly EngineReport[]): string {
  const known = (value: number | null) => (value === null ? '?' : String(value));
  const rows = engines.map((each) => [
    printable(each.url),
    printable(each.actor),
    each.release === null ? '?' : printable(each.release),
    known(each.running),
    known(each.waiting),
    each.kvUsage === null ? '?' : percent(each.kvUsage),
    `${each.adapters}/${each.slots}`,
    each.trouble === null ? 'in use' : `out of use: ${printable(each.trouble).slice(0, 120)}`,
  ]);
  const head = ['engine', 'actor', 'release', 'running', 'queued', 'KV cache', 'versions', ''];
  return table([head, ...rows]);
}

function stateOf(each: ActorReport, phase: Phase): string {
  if (each.isQuarantined) return 'quarantined';
  if (!each.isLive) {
    return phase === 'ended' ? 'ended' : `silent for ${formatSeconds(each.seenSecondsAgo)}`;
  }
  return each.refused === null ? 'live' : `refuses version ${each.refused}: canary not reproduced`;
}

function deadLetterText({ count, newest }: StatusReport['deadLetters'], run: string): string {
  if (count === 0) return 'no dead letters';
  const last =
    newest === null
      ? ''
      : `, the newest ${ago(newest.secondsAgo)} (${printable(newest.stage)}): ${printable(newest.reason)}`;
  return `${counted(count, 'dead letter')}${last}\n  offbeat dead-letters list --run ${run} shows them`;
}

/** Aligns the first column and words, whose column has no head, to the left, and numbers to the right. */
function table(rows: readonly (readonly string[])[]): string {
  const isNumber = (column: number) => column > 0 && rows[0]![column] !== '';
  return alignedLines(rows, isNumber)
    .map((line) => line.trimEnd())
    .join('\n');
}

function ago(seconds: number): string {
  return `${formatSeconds(seconds)} ago`;
}

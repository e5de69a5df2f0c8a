import { printable } from '../../shared/base/printable.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import type { EventOf, RunEvent } from '../../shared/wire/run-event.js';
import { percent, formatSeconds } from './summary.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { Screen } from './screen.js';

/** The limits of the run that its flags set. */
export interface Goal {
  readonly maxSteps?: number;
  readonly maxMinutes?: number;
  readonly epochs?: number;
}

type Step = EventOf<'step'>;

/** What the run's events say about its steps. */
interface Progress {
  readonly since: number; // when this start began, ms since the epoch: what is older is history
  readonly newest?: Step; // also of an earlier session
  readonly first?: Step; // of this session
  readonly trainedSeconds: number; // in this session, evaluations excluded
  readonly recent: readonly Step[]; // of this session, oldest first, at most `recentSteps`
}

/** @param since when this start began, in ms since the epoch. */
export function progressSince(since: number): Progress {
  return { since, trainedSeconds: 0, recent: [] };
}

/** Speeds are averages over this many steps, so that the line is calm and yet up to date. */
const recentSteps = 10;

/** The progress after one more event. */
export function withEvent(progress: Progress, event: RunEvent): Progress {
  if (event.kind !== 'step') return progress;
  if (event.at < progress.since) return { ...progress, newest: event };
  return {
    ...progress,
    newest: event,
    first: progress.first ?? event,
    trainedSeconds: progress.trainedSeconds + (event.metrics['seconds'] ?? 0),
    recent: [...progress.recent, event].slice(-recentSteps),
  };
}

/** Reports that an actor was quarantined, and why. */
export function quarantineText(event: Extract<RunEvent, { kind: 'quarantine' }>): string {
  return `${event.actor} is quarantined: ${findingText(event)} What it samples is refused from now on.`;
}

function findingText(event: Extract<RunEvent, { kind: 'quarantine' }>): string {
  const { why = 'gap', gap, bound, groups } = event;
  switch (why) {
    case 'gap':
      return (
        `in ${groups} groups its logprobs were ${gap.toFixed(3)} nats per token from those of the policy, ` +
        `and ${bound.toFixed(3)} is the most.`
      );
    case 'likelihood':
      return (
        `in ${groups} groups its tokens do not come from the probabilities that it claims; the chance that ` +
        `they do is below e^-${Math.floor(gap)}.`
      );
    case 'fleet':
      return (
        `in ${groups} groups its logprobs were ${gap.toFixed(1)} times as far from those of the policy as ` +
        `others of the same age, and ${bound} times is the most.`
      );
    case 'version':
      return (
        `in ${groups} groups its logprobs were ${gap.toPrecision(3)} nats per token from those of the version that they ` +
        `name, and ${bound} is the most.`
      );
    case 'replay':
      return `in ${groups} groups its tokens are not those that the random numbers of their tickets choose, so it selects what it sends.`;
    case 'selection':
    case 'solve_rate':
      return selectionText(why, groups, gap);
    case 'impossible':
      return `no policy can have the logprobs that ${groups} of its groups claim.`;
  }
}

/** Reports that an actor may select its answers. */
export function suspicionText(event: Extract<RunEvent, { kind: 'suspicion' }>): string {
  const { actor, why, groups, nats } = event;
  return (
    `${actor} may select the answers that it sends: ${selectionText(why, groups, nats)} It is not quarantined ` +
    '(--audit-on-selection report).'
  );
}

function selectionText(why: 'selection' | 'solve_rate', groups: number, nats: number): string {
  const what =
    why === 'selection'
      ? 'its answers are more or less probable than those that the policy draws'
      : 'it solves more than the other actors do';
  return `in ${groups} groups ${what}; an honest actor shows this about once in e^${Math.floor(nats)} groups.`;
}

/** Reports that an actor, or a server of it, does not sample, because it does not have the policy that it should. */
export function refusalText(event: Extract<RunEvent, { kind: 'refusal' }>): string {
  const { actor, engine, version, difference, band, place, mean, meanBand, closerTo } = event;
  const where = engine === undefined ? '' : ` with ${printable(engine)}`;
  return (
    `${actor} does not sample${where}: it does not reproduce the canary of version ${version} (token ${place} is off by ` +
    `${difference.toPrecision(3)} nats, and ${band} is the most; on average they are off by ${mean.toPrecision(3)}, and ${meanBand} is ` +
    `the most${closerTo === undefined ? '' : `; it is closer to version ${closerTo}`}). Its weights, its temperature or its arithmetic are not ` +
    "the policy's; its log has the details, and it tries again by itself."
  );
}

/** Reports an actor that fills its share of a stream. */
function shareText({ actor, stream, messages }: Extract<RunEvent, { kind: 'share' }>): string {
  const effect =
    stream === 'dead' ? 'its oldest are dropped' : 'more are refused until these are taken';
  return `${actor} has ${messages} messages in the stream ${stream}, as many as one actor may have: ${effect}`;
}

/** Reports that actors hold tickets for too long, and the consequence. */
export function heldText(event: Extract<RunEvent, { kind: 'held' }>): string {
  const { split, tickets, withdrawn, longestSeconds, limitSeconds } = event;
  const what = `${tickets} ${split} ${tickets === 1 ? 'ticket' : 'tickets'}`;
  const done =
    withdrawn > 0
      ? `${withdrawn} taken back and issued again`
      : `taken back after ${Math.round(limitSeconds)} s`;
  return `actors have kept ${what} for up to ${Math.round(longestSeconds)} s, longer than usual: ${done}`;
}

/**
 * The status line: step, then whatever of the rest the newest step measured. Where it is wider than the
 * screen, what matters least is left out.
 *
 * @param now in ms since the epoch.
 * @param columns of the screen.
 */
export function statusText(
  progress: Progress,
  goal: Goal,
  now: number,
  columns = Infinity,
): string {
  const { newest, first, trainedSeconds, recent, since } = progress;
  if (newest === undefined || first === undefined) {
    // The step's number is unknown: the run continues from a checkpoint, and the steps after that are trained again.
    const which = newest === undefined ? 'the first step' : 'the next step';
    return `waiting for ${which}, ${formatSeconds((now - since) / 1_000)} so far`;
  }
  const of = goal.maxSteps === undefined ? '' : `/${goal.maxSteps}`;
  const parts: Part[] = [{ text: `step ${newest.step}${of}`, rank: 0 }];
  for (const { label, key, format, rank, unless } of shownMetrics) {
    const value = newest.metrics[key];
    const isReplaced = unless !== undefined && unless in newest.metrics;
    if (value !== undefined && !isReplaced) parts.push({ text: `${label} ${format(value)}`, rank });
  }
  const seconds = total(recent, 'seconds');
  if (seconds > 0) {
    const examples = total(recent, 'sft/examples');
    const speed = (examples > 0 ? examples : total(recent, 'scored/rollouts')) / seconds;
    parts.push({
      text: `${speed.toFixed(1)} ${examples > 0 ? 'examples' : 'rollouts'}/s`,
      rank: 4,
    });
  }
  const left = secondsLeft({ newest, trainedSeconds, recent }, goal, now);
  if (left !== undefined) parts.push({ text: `${formatSeconds(left)} left`, rank: 1 });
  return fitting(parts, columns);
}

/** A piece of the status line; those of high ranks are left out first. */
interface Part {
  readonly text: string;
  readonly rank: number;
}

function fitting(parts: readonly Part[], columns: number): string {
  const line = parts.map(({ text }) => text).join('  ');
  if (line.length < columns || parts.length === 1) return line;
  const last = Math.max(...parts.map(({ rank }) => rank));
  return fitting(
    parts.filter(({ rank }) => rank !== last),
    columns,
  );
}

/** `version 12: 43.4 % of 256 held-out problems solved, 51.2 % greedily, 70.1 % in 4 tries`. */
export function evalText(result: EvalResult): string {
  const { version, lag, problems, samples, sampled, greedy, passAt } = result;
  const parts = [
    `version ${version}: ${percent(sampled)} of ${problems} held-out problems solved`,
    `${percent(greedy)} greedily`,
  ];
  const inAll = passAt[samples];
  if (samples > 1 && inAll !== undefined) parts.push(`${percent(inAll)} in ${samples} tries`);
  const meanwhile = lag === 0 ? '' : ` (training is at version ${version + lag})`;
  return `${parts.join(', ')}${meanwhile}`;
}

/** By the learner's names in metrics.jsonl. */
const shownMetrics: readonly {
  readonly label: string;
  readonly key: string;
  readonly format: (value: number) => string;
  readonly rank: number;
  readonly unless?: string; // not shown beside this one
}[] = [
  { label: 'nll', key: 'sft/nll', format: (value) => value.toFixed(3), rank: 2 },
  { label: 'held-out nll', key: 'sft/held_out_nll', format: (value) => value.toFixed(3), rank: 5 },
  { label: 'epoch', key: 'sft/epoch', format: (value) => value.toFixed(2), rank: 3 },
  { label: 'reward', key: 'env/all/reward/total', format: (value) => value.toFixed(3), rank: 2 },
  // The share of both kinds together would hide how hard the new problems still are.
  { label: 'solved', key: 'env/all/correct', format: percent, rank: 5, unless: 'env/new/correct' },
  { label: 'solved new', key: 'env/new/correct', format: percent, rank: 5 },
  { label: 'rehearsal', key: 'env/rehearsal/correct', format: percent, rank: 6 },
  { label: 'staleness', key: 'staleness/mean', format: (value) => value.toFixed(2), rank: 3 },
];

/** By the limit that comes first; the steps to come are taken to be as fast as the recent ones. */
function secondsLeft(
  {
    newest,
    trainedSeconds,
    recent,
  }: Pick<Progress, 'trainedSeconds' | 'recent'> & { newest: Step },
  goal: Goal,
  now: number,
): number | undefined {
  const limits: number[] = [];
  const seconds = total(recent, 'seconds');
  if (goal.maxSteps !== undefined && seconds > 0) {
    const perStep = seconds / recent.length;
    limits.push((goal.maxSteps - newest.step) * perStep - (now - newest.at) / 1_000);
  }
  const [early, late] = [recent[0], recent.at(-1)].map((each) => each?.metrics['sft/epoch']);
  if (goal.epochs !== undefined && early !== undefined && late !== undefined && late > early) {
    const perEpoch = total(recent.slice(1), 'seconds') / (late - early);
    limits.push((goal.epochs - late) * perEpoch - (now - newest.at) / 1_000);
  }
  if (goal.maxMinutes !== undefined) {
    limits.push(goal.maxMinutes * 60 - trainedSeconds - (now - newest.at) / 1_000);
  }
  return limits.length === 0 ? undefined : Math.max(0, Math.min(...limits));
}

/** A metric summed over steps. `seconds` is a step's time while the learner was up, without evaluations. */
function total(steps: readonly Step[], key: string): number {
  return steps.reduce((sum, { metrics }) => sum + (metrics[key] ?? 0), 0);
}

const refreshMs = 1_000;
const heldEveryMs = 60_000; // between notes that tickets are held, unless one was taken back

/**
 * Shows the run's events as they happen, until `signal` aborts. Of the history of a resumed run it shows only
 * what still applies: which actors are quarantined.
 *
 * @param onTrained is called after each new step with the seconds that this session has trained.
 */
export async function followRun(
  broker: { readonly events: Pick<Broker['events'], 'read'> },
  {
    goal,
    screen,
    signal,
    onTrained,
  }: { goal: Goal; screen: Screen; signal: AbortSignal; onTrained?: (seconds: number) => void },
): Promise<void> {
  const since = Date.now();
  let progress = progressSince(since);
  let heldAt = -Infinity; // shown last, in ms since the epoch
  const show = () => {
    screen.status(statusText(progress, goal, Date.now(), screen.columns()));
  };
  const refresh = setInterval(show, refreshMs);
  try {
    for await (const event of broker.events.read(signal)) {
      progress = withEvent(progress, event);
      const isOld = event.at < since;
      if (event.kind === 'quarantine') {
        screen.note(`${isOld ? 'from before: ' : ''}${quarantineText(event)}`);
      }
      if (isOld) continue;
      if (event.kind === 'eval') screen.note(evalText(event.result));
      if (event.kind === 'refusal') screen.note(refusalText(event));
      if (event.kind === 'suspicion') screen.note(suspicionText(event));
      if (event.kind === 'share') screen.note(shareText(event));
      if (event.kind === 'held' && (event.withdrawn > 0 || event.at - heldAt > heldEveryMs)) {
        heldAt = event.at;
        screen.note(heldText(event));
      }
      if (event.kind !== 'step') continue;
      onTrained?.(progress.trainedSeconds);
      show();
    }
  } finally {
    clearInterval(refresh);
    screen.status('');
  }
}

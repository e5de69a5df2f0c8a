import { stat } from 'node:fs/promises';
import { z } from 'zod';
import { quoted } from '../../shared/service/npm-flags.js';
import { errorText } from '../../shared/base/errors.js';
import { readJson } from '../../shared/base/read-json.js';
import { alignedLines } from '../columns.js';

const count = z.int().nonnegative();
const share = z.number().min(0).max(1);

/** Exact-solve rates on held-out problems. */
const SolveRates = z.object({
  sampled: share, // at the training temperature
  greedy: share,
  passAt: z.record(z.string(), share), // by k: of problems, one of k answers is right
});

/** The result of a run: the learner writes it as summary.json when it ends. */
export const Summary = z.looseObject({
  run: z.string().min(1),
  reason: z.string().optional(), // why it ended; absent: of an older learner
  steps: count,
  version: count,
  wallSeconds: z.number().nonnegative(),
  groups: z.looseObject({
    issued: count,
    trained: count,
    skippedZeroVariance: count,
    stale: count,
    dead: count,
    outstanding: count,
  }),
  // Of a run that trains on examples, which count as groups.
  supervised: z
    .looseObject({
      examples: count,
      leftOut: count.optional(),
      epochs: z.number().nonnegative(),
      nll: z.number().optional(), // nats per token; absent: the session trained no step
      heldOutNll: z.number().optional(),
    })
    .optional(),
  from: z.string().optional(), // where the first weights come from, if not from the base model
  staleness: z.looseObject({ mean: z.number().nonnegative(), max: count }), // in versions, of trained groups
  learnerIdleFraction: share,
  divergence: z.object({ step: count, reason: z.string(), checkpointStep: count }).optional(), // why training was given up, if it was
  drought: z.object({ groups: count, reward: z.number() }).optional(), // or no group had variance
  rolloutsPerSecond: z.number().nonnegative(),
  tokensPerSecond: z.number().nonnegative(),
  cost: z
    .looseObject({
      tokens: z.looseObject({
        sampled: count,
        trained: count,
        evaluated: count,
        wasted: count,
        inFlight: count,
        examples: count.optional(), // trained by a run on examples
        wastedBy: z.record(z.string(), count),
      }),
      heldSeconds: z.record(z.string(), z.number().nonnegative()),
      gpuSeconds: z.record(z.string(), z.number().nonnegative()),
      money: z.record(z.string(), z.number().nonnegative()).optional(), // absent: no prices
    })
    .optional(), // absent: of an older learner
  eval: z
    .looseObject({ before: SolveRates.nullable(), after: SolveRates.nullable(), problems: count })
    .nullable(), // null where nothing was evaluated
});
export type Summary = z.infer<typeof Summary>;

/** When a summary was written, in milliseconds since the epoch; undefined if there is none. */
export async function summaryTime(path: string): Promise<number | undefined> {
  return (await stat(path).catch(() => undefined))?.mtimeMs;
}

/**
 * The summary in a file, or why there is none that can be trusted.
 *
 * @param earlierTime of the summary of an earlier session, which stays until this one has trained a step.
 */
export async function readSummary(path: string, earlierTime?: number): Promise<Summary | string> {
  if (earlierTime !== undefined && earlierTime === (await summaryTime(path))) {
    return `the learner left no summary in ${path}; the one there is of an earlier session`;
  }
  let json: unknown;
  try {
    json = await readJson(path);
  } catch (caught) {
    return `the learner left no summary in ${path} (${errorText(caught)})`;
  }
  const parsed = Summary.safeParse(json);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(
    ({ path: where, message }) => `${where.map(String).join('.')}: ${message}`,
  );
  return `the summary in ${path} is not of the expected form: ${problems.join('; ')}`;
}

/** The summary as text, one fact per line. */
export function summaryText(summary: Summary): string {
  const { eval: evaluation } = summary;
  const lines: [string, string][] = [
    ...(summary.from === undefined ? [] : [['from', summary.from] as [string, string]]),
    ['steps', `${summary.steps} (policy version ${summary.version})`],
    ['time', formatSeconds(summary.wallSeconds)],
    ...(summary.supervised === undefined ? ofRollouts(summary) : ofExamples(summary)),
  ];
  if (summary.cost !== undefined) lines.push(...costLines(summary.cost));
  if (evaluation !== null) {
    const { before, after, problems } = evaluation;
    const change = (key: 'sampled' | 'greedy') =>
      [before, after].flatMap((rates) => (rates === null ? [] : percent(rates[key]))).join(' → ');
    const when = before === null ? ' at the end' : after === null ? ' before training' : '';
    const isOpen = after === null ? '; not measured at the end' : '';
    lines.push(['solved', `${change('sampled')} of ${problems} held-out problems${when}${isOpen}`]);
    lines.push(['solved greedily', `${change('greedy')}${when}`]);
  }
  if (summary.divergence !== undefined) {
    const { step, reason, checkpointStep } = summary.divergence;
    lines.push(['diverged', `at step ${step}: ${reason}; step ${checkpointStep} is saved`]);
  }
  if (summary.drought !== undefined) {
    const { groups, reward } = summary.drought;
    lines.push([
      'no signal',
      `the last ${groups} groups had no variance; their reward was ${reward.toFixed(2)}; ${signalRemedy(reward)}`,
    ]);
  }
  return factsText(lines);
}

function ofRollouts({ groups, staleness, ...rest }: Summary): [string, string][] {
  return [
    [
      'groups',
      `${groups.trained} trained of ${groups.issued} issued; ${groups.skippedZeroVariance} without variance, ` +
        `${groups.stale} too stale, ${groups.dead} dead, ${groups.outstanding} outstanding`,
    ],
    ['staleness', `${staleness.mean.toFixed(2)} versions on average, ${staleness.max} at most`],
    ['learner idle', percent(rest.learnerIdleFraction)],
    [
      'speed',
      `${rest.rolloutsPerSecond.toFixed(1)} rollouts/s, ${Math.round(rest.tokensPerSecond)} tokens/s`,
    ],
  ];
}

function ofExamples({ supervised, tokensPerSecond }: Summary): [string, string][] {
  if (supervised === undefined) return [];
  const { examples, leftOut, epochs, nll, heldOutNll } = supervised;
  const without = leftOut === undefined ? '' : `; ${leftOut} left out`;
  const known = [
    ...(nll === undefined ? [] : [`${nll.toFixed(3)} nats per token of the last step`]),
    ...(heldOutNll === undefined ? [] : [`${heldOutNll.toFixed(3)} held out`]),
  ];
  return [
    ['examples', `${examples}, ${epochs.toFixed(2)} epochs${without}`],
    ...(known.length === 0 ? [] : [['nll', known.join(', ')] as [string, string]]),
    ['speed', `${Math.round(tokensPerSecond)} trained tokens/s`],
  ];
}

function costLines({
  tokens,
  heldSeconds,
  gpuSeconds,
  money,
}: NonNullable<Summary['cost']>): [string, string][] {
  const { sampled, trained, evaluated, wasted, inFlight, wastedBy, examples } = tokens;
  const reasons = Object.entries(wastedBy)
    .filter(([, count]) => count > 0)
    .sort(([, a], [, b]) => b - a)
    .map(([reason, count]) => `${count} ${reason.replaceAll('_', ' ')}`);
  const hasGpus = Object.values(gpuSeconds).some((seconds) => seconds > 0);
  const held = Object.entries(hasGpus ? gpuSeconds : heldSeconds)
    .filter(([role, seconds]) => (hasGpus ? seconds > 0 : role !== 'reward'))
    .map(([role, seconds]) => `${role} ${formatSeconds(seconds)}`);
  const lines: [string, string][] = [
    [
      'tokens',
      `${examples === undefined ? '' : `${examples} of examples trained; `}${sampled} sampled: ${trained} trained, ${evaluated} evaluated, ${wasted} wasted` +
        `${reasons.length === 0 ? '' : ` (${reasons.join(', ')})`}, ${inFlight} in flight`,
    ],
    [hasGpus ? 'GPU time' : 'held', held.join(', ')],
  ];
  if (money !== undefined) {
    const { total = 0, ...parts } = money;
    const each = Object.entries(parts).map(([part, spent]) => `${part} ${formatMoney(spent)}`);
    lines.push(['cost', `${formatMoney(total)}: ${each.join(', ')}`]);
  }
  return lines;
}

/** Two decimals, or two significant digits of less than a cent. */
function formatMoney(amount: number): string {
  return amount >= 0.01 || amount === 0 ? amount.toFixed(2) : amount.toPrecision(2);
}

/**
 * The remedy if the answers of each group have the same reward, by the mean reward; an answer earns at most 1.
 */
function signalRemedy(reward: number): string {
  const remedy =
    reward > 0.5
      ? 'the task is learned: give it harder problems'
      : 'try easier problems, a larger --group-size or a --shaping';
  return `${remedy} (docs/troubleshooting.md)`;
}

/** The flags that name a run. @param runsDir as the flag has it. */
export function flagsOfRun(run: string, runsDir: string): string {
  return `--run ${run}${flagOfPlace(runsDir)}`;
}

function flagOfPlace(runsDir: string): string {
  return runsDir === 'runs' ? '' : ` --runs-dir ${quoted(runsDir)}`;
}

/** Where the results of a run are, and commands for the next steps. */
interface NextSteps {
  readonly folder: string; // of the run, absolute
  readonly runsDir: string; // as the flag has it
  readonly modelDir?: string | undefined; // if it is not the embedded model's
  readonly finalRateShare?: unknown; // as the run was given it
  readonly adapter?: string | undefined; // folder of the trained weights, if they are on this machine
}

/** @returns a line for each, with the command to type. */
export function nextText(
  summary: Summary,
  { folder, runsDir, modelDir, finalRateShare, adapter }: NextSteps,
): string {
  const { run, steps } = summary;
  const which = flagsOfRun(run, runsDir);
  const model = modelDir === undefined ? '' : ` --model-dir ${quoted(modelDir)}`;
  const isGivenUp = summary.divergence !== undefined || summary.drought !== undefined;
  const limit = {
    max_steps: ` --max-steps ${Math.max(1, 2 * steps)}`,
    max_minutes: ' --max-minutes 5',
  }[String(summary.reason)];
  const start = summary.supervised === undefined ? 'npm start --' : 'npx offbeat sft';
  const lines: [string, string][] = [
    ['results', `${folder}: metrics.jsonl, evals.jsonl, summary.json, checkpoints`],
    ...(adapter === undefined
      ? []
      : ([['adapter', `${adapter} (docs/export.md)`]] as [string, string][])),
    ['dashboard', `npx offbeat dashboard ${which}`],
    ['report', `npx offbeat report ${which}`],
    ['evaluate', `npx offbeat eval ${which}`],
    ...(summary.supervised === undefined
      ? []
      : ([
          [
            'start RL',
            `npm start -- --from ${run}${flagOfPlace(runsDir)}${model}, with this run's flags of task and prompt`,
          ],
        ] as [string, string][])),
    // A resumed run would fail again for the same reason, or have no learning rate left.
    ...(isGivenUp || (limit !== undefined && finalRateShare === 0)
      ? []
      : [['continue', `${start} ${which} --resume${limit ?? ''}`] as [string, string]]),
  ];
  return factsText(lines);
}

function factsText(facts: readonly [label: string, text: string][]): string {
  return alignedLines(facts)
    .map((line) => `  ${line}`)
    .join('\n');
}

/** `2 min 5 s`. */
export function formatSeconds(seconds: number): string {
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const parts = [
    ...(hours > 0 ? [`${hours} h`] : []),
    ...(whole >= 60 ? [`${minutes} min`] : []),
    ...(hours === 0 ? [`${whole % 60} s`] : []),
  ];
  return parts.join(' ');
}

/** `48.1 %` for a share of 0.481. */
export function percent(share: number, decimals = 1): string {
  return `${(100 * share).toFixed(decimals)} %`;
}

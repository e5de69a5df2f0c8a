import { sum } from '../../shared/base/statistics.js';
import type { Usage } from '../../shared/wire/ledger.js';
import { StatTable } from '../report/stat-table.js';
import type { Prices } from '../settings/prices.js';

/** What a run has used, and what that costs if there are prices. */
export interface Bill {
  /** Tokens of answers: sampled = trained + evaluated + wasted + inFlight. */
  readonly tokens: {
    readonly sampled: number;
    readonly trained: number; // by steps that count
    readonly evaluated: number; // sampled for evaluations
    readonly inFlight: number; // received, neither trained nor wasted yet
    readonly wasted: number;
    readonly wastedBy: Readonly<Record<string, number>>; // by reason
    readonly masked: number; // of the trained
    readonly undone: number; // trained in steps that a crash undid
    readonly prompts: number; // of prompts, once a group
    readonly examples?: number; // trained by a run on examples, prompts included
  };
  readonly heldSeconds: Readonly<Record<Role, number>>; // summed over the machines of a role
  readonly gpuSeconds: Readonly<Record<Role, number>>; // times the GPUs of each
  /** By what is paid for; absent without prices. */
  readonly money?: Readonly<Record<string, number>>;
}

type Role = 'sampler' | 'trainer' | 'reward';
const roles: readonly Role[] = ['sampler', 'trainer', 'reward'];

/** @param inFlight tokens of groups that are received and neither trained nor wasted yet. */
export function billOf(
  { tokens, meter }: Pick<Usage, 'tokens' | 'meter'>,
  inFlight: number,
  prices: Prices,
): Bill {
  const wastedBy = { ...tokens.wasted };
  for (const [reason, count] of Object.entries(meter.abandoned)) {
    wastedBy[`cancelled_${reason}`] = count;
  }
  const wasted = sum(Object.values(wastedBy));
  const sampled = tokens.trained + meter.evaluated + wasted + inFlight;
  const prompts = tokens.prompts.sampled + meter.evaluatedPrompts;
  const gpus = {
    sampler: prices.gpusSampler,
    trainer: prices.gpusTrainer,
    reward: prices.gpusReward,
  };
  const hourly = {
    sampler: prices.priceSamplerHour,
    trainer: prices.priceTrainerHour,
    reward: prices.priceRewardHour,
  };
  const { examples } = tokens;
  const toTrain = tokens.trained + tokens.prompts.trained + meter.undone + (examples ?? 0);
  const money: Record<string, number> = {};
  for (const role of roles) {
    const price = hourly[role];
    if (price === undefined) continue;
    money[role] = (price * meter.seconds[role] * (gpus[role] || 1)) / 3_600;
  }
  const byTokens: [part: string, price: number | undefined, count: number][] = [
    ['prefill', prices.pricePrefillTokens, prompts],
    ['sampled', prices.priceSampledTokens, sampled],
    ['trained', prices.priceTrainedTokens, toTrain],
  ];
  for (const [part, price, count] of byTokens) {
    if (price !== undefined) money[part] = (price * count) / 1e6;
  }
  const hasPrices = Object.keys(money).length > 0;
  return {
    tokens: {
      sampled,
      trained: tokens.trained,
      evaluated: meter.evaluated,
      inFlight,
      wasted,
      wastedBy,
      masked: tokens.masked,
      undone: meter.undone,
      prompts,
      ...(examples !== undefined && { examples }),
    },
    heldSeconds: meter.seconds,
    gpuSeconds: {
      sampler: meter.seconds.sampler * gpus.sampler,
      trainer: meter.seconds.trainer * gpus.trainer,
      reward: meter.seconds.reward * gpus.reward,
    },
    ...(hasPrices && { money: { ...money, total: sum(Object.values(money)) } }),
  };
}

const tokenStats = new StatTable<number>([
  {
    jsonl: 'run_tokens/{use}',
    prometheus: 'rl_run_tokens',
    help: 'Tokens of answers since the run began, by use: sampled = trained + evaluated + wasted + in_flight.',
    of: (tokens) => tokens,
  },
]);
const wasteStats = new StatTable<number>([
  {
    jsonl: 'run_tokens_wasted/{reason}',
    prometheus: 'rl_run_tokens_wasted',
    help: 'Sampled tokens since the run began that no step will train on, by reason.',
    of: (tokens) => tokens,
  },
]);
const timeStats = new StatTable<{ held: number; gpu: number }>([
  {
    jsonl: 'held_seconds/{role}',
    prometheus: 'rl_held_seconds',
    help: 'Time for which the machines of a role were held since the run began, summed over the machines.',
    of: ({ held }) => held,
  },
  {
    jsonl: 'gpu_seconds/{role}',
    prometheus: 'rl_gpu_seconds',
    help: 'The same times the GPUs of each machine: --gpus-sampler, --gpus-trainer, --gpus-reward.',
    of: ({ gpu }) => gpu,
  },
]);
const moneyStats = new StatTable<number>([
  {
    jsonl: 'cost/{part}',
    prometheus: 'rl_cost',
    help: 'Money spent since the run began, in the currency of the --price flags, by what it was spent on.',
    of: (money) => money,
  },
]);

/** The figures of a bill by their names in `metrics.jsonl`; also sets them in Prometheus. */
export function recordBill({ tokens, heldSeconds, gpuSeconds, money = {} }: Bill) {
  const { wastedBy, inFlight, ...uses } = tokens;
  const metrics: Record<string, number> = {};
  for (const [use, count] of Object.entries({ ...uses, in_flight: inFlight })) {
    Object.assign(metrics, tokenStats.record(count, { use }));
  }
  for (const [reason, count] of Object.entries(wastedBy)) {
    Object.assign(metrics, wasteStats.record(count, { reason }));
  }
  for (const role of roles) {
    const times = { held: heldSeconds[role], gpu: gpuSeconds[role] };
    Object.assign(metrics, timeStats.record(times, { role }));
  }
  for (const [part, spent] of Object.entries(money)) {
    Object.assign(metrics, moneyStats.record(spent, { part }));
  }
  return metrics;
}

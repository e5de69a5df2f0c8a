import { median } from '../base/statistics.js';
import type { TokenPairs } from './off-policy.js';

/** When an actor's claims about its own tokens are believed. */
export interface AuditLimits {
  /** Groups of an actor that are looked at together: the newest ones. */
  readonly window: number;
  /** Fewer are no evidence. */
  readonly minGroups: number;
  /** A gap below this is numerical noise, whatever the others have; nats a token. */
  readonly noise: number;
  /** How many times the gap of the others an actor may have. */
  readonly factor: number;
  /** The gap that an actor may have where there is nobody to compare it with; nats a token. */
  readonly alone: number;
  /** Evidence against an actor that ends the doubt, in nats: e^-proof is the rate of false alarms. */
  readonly proof: number;
  /** So many groups of an actor with impossible claims are no accident. */
  readonly maxRefused: number;
}

/** An actor whose logprobs are not those of the policy that it says it sampled with. */
export interface Outsider {
  readonly actor: string;
  readonly gap: number; // nats a token, the median of its newest groups
  readonly bound: number; // that it should have kept
  readonly groups: number; // that were looked at
}

/**
 * How far the logprobs that an actor claims for a group are from those of the policy that it names.
 *
 * @param rollouts pairs of claimed and computed logprobs, of the same weights.
 * @returns mean |claimed - computed| over all tokens, nats a token; 0 for no tokens.
 */
export function logprobGap(rollouts: readonly TokenPairs[]): number {
  let sum = 0;
  let tokens = 0;
  for (const { behavior, current } of rollouts) {
    tokens += behavior.length;
    for (let t = 0; t < behavior.length; t++) sum += Math.abs(behavior[t]! - current[t]!);
  }
  return tokens === 0 ? 0 : sum / tokens;
}

/**
 * The actors that leave the fleet's band. Each is compared with the median of the others, so that
 * it cannot widen its own band, and one with many groups has no more weight than one with few. Servers
 * differ in how exactly they compute, but by the same for all: hence a multiple of what is usual.
 *
 * @param gaps of each actor's audited groups, the oldest first.
 */
export function outsiders(
  gaps: ReadonlyMap<string, readonly number[]>,
  limits: AuditLimits,
): Outsider[] {
  const judged = [...gaps].flatMap(([actor, all]) => {
    const newest = all.slice(-limits.window);
    return newest.length < limits.minGroups
      ? []
      : [{ actor, gap: median(newest), groups: newest.length }];
  });
  return judged
    .map((one) => ({ ...one, bound: boundOf(one.actor, judged, limits) }))
    .filter(({ gap, bound }) => gap > bound);
}

function boundOf(
  actor: string,
  judged: readonly { readonly actor: string; readonly gap: number }[],
  { noise, factor, alone }: AuditLimits,
): number {
  const others = judged.filter((other) => other.actor !== actor).map(({ gap }) => gap);
  return others.length === 0 ? alone : Math.min(alone, Math.max(noise, factor * median(others)));
}

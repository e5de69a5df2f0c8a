import { median } from '../base/statistics.js';
import type { TokenPairs } from './off-policy.js';

/** The thresholds of the audit of the logprobs that actors claim. */
export interface AuditLimits {
  /** Number of newest groups per actor that are audited together. */
  readonly window: number;
  /** Minimum number of groups for a verdict. */
  readonly minGroups: number;
  /** A gap below this is numerical noise, whatever the gap of the others; nats per token. */
  readonly noise: number;
  /** Largest allowed gap as a multiple of the others' gap. */
  readonly factor: number;
  /** Largest allowed gap if there is no other actor to compare with; nats per token. */
  readonly alone: number;
  /** Evidence that convicts an actor, in nats: e^-proof is the rate of false alarms. */
  readonly proof: number;
  /** Number of groups with impossible claims that convicts an actor. */
  readonly maxRefused: number;
}

/** An actor whose logprobs are not those of the policy version that it names. */
interface Outsider {
  readonly actor: string;
  readonly gap: number; // nats per token, the median of its newest groups
  readonly bound: number; // that the gap exceeded
  readonly groups: number; // number audited
}

/**
 * The distance of the logprobs that an actor claims for a group from those of the policy that it names.
 *
 * @param rollouts pairs of claimed and computed logprobs, of the same weights.
 * @returns mean |claimed - computed| over all tokens, nats per token; 0 for no tokens.
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
 * The actors outside the fleet's band. Each is compared with the median of the others, so that it cannot
 * widen its own band and the number of its groups gives it no weight. The bound is a multiple of the
 * usual gap, because the numerical precision of a server affects all actors alike.
 *
 * @param gaps those of each actor's audited groups, the oldest first.
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

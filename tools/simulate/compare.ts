import { leastSeconds } from './bound.js';
import { simulate } from './loop.js';
import type { Outcome } from './measures.js';
import { type Circumstances, type PolicyName, policyOf } from './policies.js';

/** Policies under one staleness bound. */
export interface Comparison {
  readonly bound: number; // versions
  /** Steps an hour that no policy without losses can exceed. */
  readonly attainable: number;
  readonly results: readonly PolicyResult[];
}

export interface PolicyResult extends Outcome {
  readonly policy: PolicyName;
  /** The share of what could have been reached with the answers that the policy trained, under its own bound. */
  readonly ofAttainable: number;
}

export function comparePolicies(
  names: readonly PolicyName[],
  circumstances: Circumstances,
): Comparison {
  const { bound, setting, trace } = circumstances;
  const groups = Array.from({ length: setting.steps * setting.groupsPerBatch }, (_, problem) =>
    trace.answersTo(problem, 0, setting.groupSize),
  );
  const results = names.map((policy): PolicyResult => {
    const decided = policyOf(policy, circumstances);
    const outcome = simulate(setting, decided, trace);
    const oldestGroup = decided.window === 'tokens' ? Infinity : bound;
    const ofAttainable = leastSeconds(setting, oldestGroup, outcome.trained) / outcome.seconds;
    return { policy, ofAttainable, ...outcome };
  });
  const attainable = (3_600 * setting.steps) / leastSeconds(setting, bound, groups);
  return { bound, attainable, results };
}

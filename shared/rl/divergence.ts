/** What one step shows of the health of training. */
export interface StepHealth {
  readonly step: number;
  /** kl_sample_train_v2, nats a token; not a finite number once the logprobs are none. */
  readonly kl: number;
  /** Mean reward of what the step consumed; undefined where it is not known. */
  readonly reward: number | undefined;
}

export interface DivergenceLimits {
  /** Largest KL that counts as healthy, nats a token; Infinity: any finite one. */
  readonly maxKl: number;
  /** A reward is collapsed below this share of the best there was; 0: never. */
  readonly minRewardShare: number;
  /** So many unhealthy steps in a row end the run. Rewards are averaged over as many. */
  readonly patience: number;
}

export interface Verdict {
  /** healthy: may be checkpointed. suspect: may not. diverged: no later step can be hoped to mend it. */
  readonly state: 'healthy' | 'suspect' | 'diverged';
  /** What is wrong with the last step, for the user; empty when healthy. */
  readonly reason: string;
}

/**
 * Whether training still converges, judged after the last of `steps`. A step is unhealthy when its KL
 * is above the bound, or when the reward, averaged over the last `patience` steps, has fallen below
 * the given share of the best such average before. As many unhealthy steps in a row are a divergence; a KL
 * that is no number is one at once.
 *
 * @param steps of the run so far, in order, at least one.
 */
export function judgeDivergence(steps: readonly StepHealth[], limits: DivergenceLimits): Verdict {
  const last = steps.at(-1)!;
  if (!Number.isFinite(last.kl)) {
    return { state: 'diverged', reason: "the policy's logprobs are not finite" };
  }
  let unhealthy = 0;
  let reason = '';
  const averages = rewardAverages(steps, limits.patience);
  let best = -Infinity;
  steps.forEach((step, i) => {
    const average = averages[i];
    const complaint = complaintAbout(step, average, best, limits);
    if (average !== undefined) best = Math.max(best, average);
    unhealthy = complaint === undefined ? 0 : unhealthy + 1;
    reason = complaint ?? '';
  });
  if (unhealthy === 0) return { state: 'healthy', reason: '' };
  return { state: unhealthy >= limits.patience ? 'diverged' : 'suspect', reason };
}

function complaintAbout(
  { kl }: StepHealth,
  average: number | undefined,
  best: number,
  { maxKl, minRewardShare, patience }: DivergenceLimits,
): string | undefined {
  if (kl > maxKl) {
    return `the KL between sampling and training policy is ${shown(kl)} nats a token, above ${maxKl}`;
  }
  if (average !== undefined && best > 0 && average < minRewardShare * best) {
    return (
      `the reward over ${patience} steps is ${shown(average)}, ` +
      `less than ${minRewardShare} of its best, ${shown(best)}`
    );
  }
  return undefined;
}

/** [steps] the mean of the last `window` known rewards; undefined until there are as many. */
function rewardAverages(steps: readonly StepHealth[], window: number): (number | undefined)[] {
  const recent: number[] = [];
  return steps.map(({ reward }) => {
    if (reward !== undefined) recent.push(reward);
    if (recent.length > window) recent.shift();
    if (recent.length < window) return undefined;
    return recent.reduce((sum, value) => sum + value, 0) / window;
  });
}

function shown(value: number): string {
  return String(Number(value.toPrecision(3)));
}

import { z } from 'zod';

/** The losses of the Tinker API, by the names that it has for them. */
export const LossName = z.enum(['importance_sampling', 'ppo', 'cispo', 'dro', 'cross_entropy']);
export type LossName = z.infer<typeof LossName>;

/** Per-token inputs, each [T]. `cross_entropy` reads `weights`; the others `logprobs`, `advantages`. */
export interface LossInputs {
  readonly logprobs?: ArrayLike<number>; // of the behavior policy
  readonly advantages?: ArrayLike<number>;
  readonly weights?: ArrayLike<number>;
}

export interface LossAndGradient {
  readonly loss: number; // summed over tokens; to be minimised
  readonly gradient: Float64Array; // [T] d loss / d current logprob
}

/**
 * The five losses as the Tinker API defines them, with their derivative: what every backend must
 * compute, and what the training graph of `shared/model` is tested against.
 *
 * With ℓ the current logprob, q the behavior logprob, A the advantage and r = exp(ℓ - q):
 *
 * | name                  | loss                              | config                                |
 * | --------------------- | --------------------------------- | ------------------------------------- |
 * | `cross_entropy`       | -Σ w·ℓ                            |                                       |
 * | `importance_sampling` | -Σ r·A                            |                                       |
 * | `ppo`                 | -Σ min(r·A, clip(r)·A)            | clip_low_threshold, clip_high_threshold |
 * | `cispo`               | -Σ stopgrad(clip(r))·A·ℓ          | clip_low_threshold, clip_high_threshold |
 * | `dro`                 | -Σ (A·ℓ - β/2·(ℓ - q)²)           | beta                                  |
 *
 * Thresholds bound the ratio itself: (0.8, 1.2) is what PPO papers call ε = 0.2. `cispo` with (0, C)
 * is token-level truncated importance sampling. `dro` has a gradient also where A is 0.
 *
 * Cost: one `forward_backward`; with `dro` one `forward` more, since it pulls on the prompt too, whose
 * logprobs nobody has reported.
 *
 * Source: TuFT `loss_fn/*.py`; CISPO is MiniMax-M1 (arXiv:2506.13585), DRO is Richemond et al. 2024
 * (arXiv:2405.19107).
 *
 * @param currentLogprobs [T] under the policy in training.
 * @throws {RangeError} if an input or a setting that the loss needs is missing or has another length.
 */
export function lossAndGradient(
  name: LossName,
  currentLogprobs: ArrayLike<number>,
  inputs: LossInputs,
  config: Readonly<Record<string, number>>,
): LossAndGradient {
  const length = currentLogprobs.length;
  const column = (key: keyof LossInputs): ArrayLike<number> => {
    const values = inputs[key];
    if (values?.length !== length) {
      throw new RangeError(`${name} needs ${length} ${key}, got ${values?.length ?? 'none'}`);
    }
    return values;
  };
  const setting = (key: string): number => {
    const value = config[key];
    if (value === undefined) throw new RangeError(`${name} needs the setting ${key}`);
    return value;
  };

  if (name === 'cross_entropy') {
    const weights = column('weights');
    return sumOver(currentLogprobs, (logprob, i) => [-weights[i]! * logprob, -weights[i]!]);
  }

  const behavior = column('logprobs');
  const advantages = column('advantages');
  const token = tokenLoss(name, setting);
  return sumOver(currentLogprobs, (logprob, i) => token(logprob, behavior[i]!, advantages[i]!));
}

type TokenLoss = (logprob: number, behavior: number, advantage: number) => [number, number];

/** One token's loss and its derivative by the current logprob. d r / d ℓ = r. */
function tokenLoss(
  name: Exclude<LossName, 'cross_entropy'>,
  setting: (key: string) => number,
): TokenLoss {
  switch (name) {
    case 'importance_sampling':
      return (logprob, behavior, advantage) => {
        const ratio = Math.exp(logprob - behavior);
        return [-ratio * advantage, -ratio * advantage];
      };
    case 'ppo': {
      const clip = clipBetween(setting('clip_low_threshold'), setting('clip_high_threshold'));
      return (logprob, behavior, advantage) => {
        const ratio = Math.exp(logprob - behavior);
        const surrogate = ratio * advantage;
        const clipped = clip(ratio) * advantage;
        // The clipped branch is a constant: a token that it wins no longer moves.
        return surrogate <= clipped ? [-surrogate, -surrogate] : [-clipped, 0];
      };
    }
    case 'cispo': {
      const clip = clipBetween(setting('clip_low_threshold'), setting('clip_high_threshold'));
      return (logprob, behavior, advantage) => {
        const weight = clip(Math.exp(logprob - behavior)) * advantage; // carries no gradient
        return [-weight * logprob, -weight];
      };
    }
    case 'dro': {
      const beta = setting('beta');
      return (logprob, behavior, advantage) => {
        const gap = logprob - behavior;
        return [-(advantage * logprob - 0.5 * beta * gap * gap), -(advantage - beta * gap)];
      };
    }
  }
}

function clipBetween(low: number, high: number): (ratio: number) => number {
  return (ratio) => Math.min(Math.max(ratio, low), high);
}

function sumOver(
  logprobs: ArrayLike<number>,
  token: (logprob: number, i: number) => [loss: number, derivative: number],
): LossAndGradient {
  const gradient = new Float64Array(logprobs.length);
  let loss = 0;
  for (let i = 0; i < logprobs.length; i++) {
    const [value, derivative] = token(logprobs[i]!, i);
    loss += value;
    gradient[i] = derivative;
  }
  return { loss, gradient };
}

/** How a model tells its tokens' positions: it turns pairs of each query and key by an angle. */
export interface RotaryEmbedding {
  readonly theta: number;
  readonly scaling: RotaryScaling;
}

/** How the angles were changed so that more positions fit than the model was first trained on. */
export type RotaryScaling =
  | { readonly type: 'none' }
  | { readonly type: 'linear'; readonly factor: number }
  | {
      readonly type: 'yarn';
      readonly factor: number;
      readonly originalMaxPositions: number;
      /** Pairs that turn more often than this within the original positions are left alone. */
      readonly betaFast: number;
      /** Pairs that turn less often than this are slowed down by the whole factor. */
      readonly betaSlow: number;
      /** Whether the ramp between the two begins and ends at whole pairs. */
      readonly isTruncated: boolean;
      readonly attentionFactor: number | undefined; // by default that of the paper
      readonly mscale: number | undefined;
      readonly mscaleAllDim: number | undefined;
    }
  | {
      readonly type: 'llama3';
      readonly factor: number;
      readonly originalMaxPositions: number;
      readonly lowFrequencyFactor: number;
      readonly highFrequencyFactor: number;
    };

export interface RotarySpectrum {
  /** [D/2] by which angle pair i turns from one position to the next, in radians, as float32. */
  readonly frequencies: Float32Array;
  /** What queries and keys are multiplied by as they are turned. */
  readonly amplitude: number;
}

/**
 * The rotary embedding's frequencies for heads of D elements. Unscaled, pair i turns by
 * theta^(-2i/D) a position. The power and its inverse are rounded to float32, as transformers rounds
 * them: at position 100,000 their last bit is worth 0.01 radians.
 *
 * Sources: RoPE (Su et al. 2021, arXiv:2104.09864); position interpolation (`linear`, Chen et al.
 * 2023, arXiv:2306.15595); YaRN (`yarn`, Peng et al. 2023, arXiv:2309.00071), whose attention factor
 * 0.1·ln(factor) + 1 is the amplitude, once each for query and key; Llama 3.1's own (`llama3`).
 * Defaults and details as in transformers' `modeling_rope_utils`.
 */
export function rotarySpectrum(
  { theta, scaling }: RotaryEmbedding,
  headDim: number,
): RotarySpectrum {
  const unscaled = Float32Array.from(
    { length: headDim / 2 },
    (_, i) => 1 / Math.fround(theta ** ((2 * i) / headDim)),
  );
  switch (scaling.type) {
    case 'none':
      return { frequencies: unscaled, amplitude: 1 };
    case 'linear':
      return { frequencies: unscaled.map((f) => f / scaling.factor), amplitude: 1 };
    case 'yarn':
      return {
        frequencies: unscaled.map(yarnScaling(scaling, theta, headDim)),
        amplitude: yarnAmplitude(scaling),
      };
    case 'llama3':
      return { frequencies: unscaled.map(llama3Scaling(scaling)), amplitude: 1 };
  }
}

type Scaling<Type> = Extract<RotaryScaling, { type: Type }>;
type FrequencyMap = (frequency: number, pair: number) => number;

/** Interpolates slow pairs, keeps fast ones, and blends along a ramp over the pairs between. */
function yarnScaling(scaling: Scaling<'yarn'>, theta: number, headDim: number): FrequencyMap {
  const { factor, originalMaxPositions, betaFast, betaSlow, isTruncated } = scaling;
  /** The pair, as a real number, that turns so many times within the original positions. */
  const pairTurning = (rotations: number) =>
    (headDim * Math.log(originalMaxPositions / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
  const start = pairTurning(betaFast);
  const end = pairTurning(betaSlow);
  const low = Math.max(isTruncated ? Math.floor(start) : start, 0);
  const high = Math.min(isTruncated ? Math.ceil(end) : end, headDim - 1);
  const width = high === low ? 0.001 : high - low;
  return (frequency, pair) => {
    const slowness = Math.min(1, Math.max(0, (pair - low) / width));
    return (frequency / factor) * slowness + frequency * (1 - slowness);
  };
}

function yarnAmplitude(scaling: Scaling<'yarn'>): number {
  const { factor, attentionFactor, mscale, mscaleAllDim } = scaling;
  const amplitude = (scale: number) => (factor <= 1 ? 1 : 0.1 * scale * Math.log(factor) + 1);
  if (attentionFactor !== undefined) return attentionFactor;
  return mscale && mscaleAllDim ? amplitude(mscale) / amplitude(mscaleAllDim) : amplitude(1);
}

/** Slows long waves down, keeps short ones, and blends by wavelength between. */
function llama3Scaling(scaling: Scaling<'llama3'>): FrequencyMap {
  const { factor, originalMaxPositions, lowFrequencyFactor, highFrequencyFactor } = scaling;
  return (frequency) => {
    const waves = (originalMaxPositions * frequency) / (2 * Math.PI); // within the original positions
    if (waves > highFrequencyFactor) return frequency;
    if (waves < lowFrequencyFactor) return frequency / factor;
    const speed = (waves - lowFrequencyFactor) / (highFrequencyFactor - lowFrequencyFactor);
    return (1 - speed) * (frequency / factor) + speed * frequency;
  };
}

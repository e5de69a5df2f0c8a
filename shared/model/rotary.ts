import { z } from 'zod';
import { complaintsOf, type Complaint } from './config-complaints.js';
import type { Dim, Graph, Value } from './graph/graph.js';
import { cast, cos, mul, reshape, sin } from './graph/operators.js';

/** The rotary position embedding: rotates pairs of elements of each query and key by an angle. */
export interface RotaryEmbedding {
  readonly theta: number;
  readonly scaling: RotaryScaling;
}

/** The change of the angles that extends the positions beyond those of the first training. */
type RotaryScaling =
  | { readonly type: 'none' }
  | { readonly type: 'linear'; readonly factor: number }
  | {
      readonly type: 'yarn';
      readonly factor: number;
      readonly originalMaxPositions: number;
      /** Pairs that turn more often than this within the original positions are unchanged. */
      readonly betaFast: number;
      /** Pairs that turn less often than this are slowed down by the full factor. */
      readonly betaSlow: number;
      /** Whether the ramp between the two begins and ends at integer pair indices. */
      readonly isTruncated: boolean;
      readonly attentionFactor: number | undefined; // default: that of the paper
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

interface RotarySpectrum {
  /** [D/2] The angle of pair i per position, in radians, as float32. */
  readonly frequencies: Float32Array;
  /** The factor applied to rotated queries and keys. */
  readonly amplitude: number;
}

/**
 * The rotary embedding's frequencies for heads of D elements. Unscaled, pair i turns by
 * theta^(-2i/D) per position. The power and its inverse are rounded to float32, as in transformers: at
 * position 100,000 their last bit makes a difference of 0.01 radians.
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

/** Interpolates slow pairs, keeps fast ones, and blends the pairs between linearly. */
function yarnScaling(scaling: Scaling<'yarn'>, theta: number, headDim: number): FrequencyMap {
  const { factor, originalMaxPositions, betaFast, betaSlow, isTruncated } = scaling;
  /** The real-valued index of the pair that turns this many times within the original positions. */
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

/** Slows down long waves, keeps short ones, and blends those between by wavelength. */
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

const theta = z.number().positive().nullish();
const positions = z.int().positive().nullish();
const wholeHeads = z.literal(1, 'only rotation of whole heads is supported').nullish();

/** The keys of config.json for the position embedding. */
export const ropeKeys = {
  rope_theta: theta,
  rope_parameters: z.looseObject({}).nullish(), // where transformers 5 keeps theta and scaling
  rope_scaling: z.looseObject({}).nullish(), // where earlier releases kept the scaling
  partial_rotary_factor: wholeHeads,
  original_max_position_embeddings: positions,
};
type RopeKeys = z.infer<z.ZodObject<typeof ropeKeys>>;

const common = { rope_theta: theta, partial_rotary_factor: wholeHeads };
const factor = z.number().min(1);
const positive = z.number().positive();

/** Strict, because an ignored setting would make every angle wrong. */
const RopeSettings = z.discriminatedUnion(
  'rope_type',
  [
    z.strictObject({ ...common, rope_type: z.literal('default') }),
    z.strictObject({ ...common, rope_type: z.literal('linear'), factor }),
    z.strictObject({ ...common, rope_type: z.literal('dynamic'), factor }),
    z.strictObject({
      ...common,
      rope_type: z.literal('yarn'),
      factor,
      original_max_position_embeddings: positions,
      attention_factor: positive.nullish(),
      beta_fast: positive.nullish(),
      beta_slow: positive.nullish(),
      mscale: positive.nullish(),
      mscale_all_dim: positive.nullish(),
      truncate: z.boolean().nullish(),
    }),
    z
      .strictObject({
        ...common,
        rope_type: z.literal('llama3'),
        factor,
        original_max_position_embeddings: positions,
        low_freq_factor: positive,
        high_freq_factor: positive,
      })
      .refine(({ low_freq_factor, high_freq_factor }) => low_freq_factor < high_freq_factor, {
        path: ['high_freq_factor'],
        message: 'it must be greater than low_freq_factor',
      }),
  ],
  'default, linear, dynamic, yarn and llama3 run; choose a model without another scaling',
);
type RopeSettings = z.infer<typeof RopeSettings>;

/**
 * Reads the rotary embedding and the number of positions that it supports. As in transformers,
 * `rope_scaling` overrides `rope_parameters`, and theta inside the scaling overrides theta outside.
 *
 * @param complaints problems are appended here; the result is then unusable.
 */
export function readRotary(
  hf: RopeKeys & { readonly max_position_embeddings: number },
  complaints: Complaint[],
): { rotary: RotaryEmbedding; maxPositions: number } {
  const key = isEmpty(hf.rope_scaling) ? 'rope_parameters' : 'rope_scaling';
  const { type, ...given } = hf[key] ?? {}; // before release 4.43 rope_type was called type
  const named = { rope_type: type ?? 'default', ...given };
  const parsed = RopeSettings.safeParse(named);
  if (!parsed.success) {
    const asInFile = (name: string) =>
      Object.hasOwn(given, 'rope_type') ? name : name.replace(/rope_type$/, 'type');
    for (const complaint of complaintsOf(parsed.error, named, key)) {
      complaints.push({ ...complaint, key: asInFile(complaint.key) });
    }
  }
  const settings = parsed.data ?? { rope_type: 'default' };
  const scaling = scalingOf(settings, hf);
  return {
    rotary: { theta: settings.rope_theta ?? hf.rope_theta ?? 10_000, scaling },
    maxPositions: Math.max(hf.max_position_embeddings, roomFor(scaling, hf)),
  };
}

function isEmpty(settings: object | null | undefined): boolean {
  return Object.keys(settings ?? {}).length === 0;
}

function scalingOf(settings: RopeSettings, hf: Parameters<typeof readRotary>[0]): RotaryScaling {
  const original = (own: number | null | undefined) =>
    hf.original_max_position_embeddings ?? own ?? hf.max_position_embeddings;
  switch (settings.rope_type) {
    case 'default':
      return { type: 'none' };
    case 'dynamic': // scales only beyond max_position_embeddings, where sequences are refused
      return { type: 'none' };
    case 'linear':
      return { type: 'linear', factor: settings.factor };
    case 'yarn':
      return {
        type: 'yarn',
        factor: settings.factor,
        originalMaxPositions: original(settings.original_max_position_embeddings),
        betaFast: settings.beta_fast ?? 32,
        betaSlow: settings.beta_slow ?? 1,
        isTruncated: settings.truncate ?? true,
        attentionFactor: settings.attention_factor ?? undefined,
        mscale: settings.mscale ?? undefined,
        mscaleAllDim: settings.mscale_all_dim ?? undefined,
      };
    case 'llama3':
      return {
        type: 'llama3',
        factor: settings.factor,
        originalMaxPositions: original(settings.original_max_position_embeddings),
        lowFrequencyFactor: settings.low_freq_factor,
        highFrequencyFactor: settings.high_freq_factor,
      };
  }
}

/**
 * The number of positions after scaling. Models with `linear` and `yarn` keep the original
 * max_position_embeddings; that of Llama 3.1 is the extended length.
 *
 * Source: vLLM's rule, which samples for TuFT.
 */
function roomFor(scaling: RotaryScaling, hf: { readonly max_position_embeddings: number }): number {
  if (scaling.type === 'linear') return Math.floor(hf.max_position_embeddings * scaling.factor);
  if (scaling.type === 'yarn') return Math.floor(scaling.originalMaxPositions * scaling.factor);
  return hf.max_position_embeddings;
}

/**
 * Cosines and sines of every token's angles, times the amplitude: [batch, time, D/2] each. They are
 * computed on demand, because tables of all positions need much memory: 67 MB per graph for Llama
 * 3.1's 131,072.
 *
 * @param positions [batch, time] int64
 */
export function rotaryWaves(
  graph: Graph,
  { rotary, headDim }: { rotary: RotaryEmbedding; headDim: number },
  positions: Value,
  { batch, time }: { batch: Dim; time: Dim },
): { cos: Value; sin: Value } {
  const { frequencies, amplitude } = rotarySpectrum(rotary, headDim);
  const column = cast(graph, reshape(graph, positions, [batch, time, 1]), 'float32');
  const angles = mul(graph, column, graph.float(frequencies, [frequencies.length]));
  const scaled = (x: Value) => (amplitude === 1 ? x : mul(graph, x, graph.float(amplitude)));
  return { cos: scaled(cos(graph, angles)), sin: scaled(sin(graph, angles)) };
}

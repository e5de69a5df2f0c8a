import { z } from 'zod';
import { complaintsOf, type Complaint } from './config-complaints.js';
import type { RotaryEmbedding, RotaryScaling } from './rotary.js';

const theta = z.number().positive().nullish();
const positions = z.int().positive().nullish();
const wholeHeads = z.literal(1, 'only heads that are turned as a whole run').nullish();

/** The keys of config.json that say how the model tells positions. */
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

/** Strict, because a setting that is overlooked would bend every angle. */
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
 * The rotary embedding, and how many positions it makes room for. As in transformers, `rope_scaling`
 * wins over `rope_parameters`, and theta beside the scaling over theta outside.
 *
 * @param complaints what is wrong is appended here; the result is then of no use.
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
    case 'dynamic': // scales only what is longer than max_position_embeddings, which is refused
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
 * How many positions a scaling stretches the model to. Models ship with `linear` and `yarn` added and
 * max_position_embeddings left as it was; Llama 3.1's says the stretched length itself.
 *
 * Source: vLLM's rule, which samples for TuFT.
 */
function roomFor(scaling: RotaryScaling, hf: { readonly max_position_embeddings: number }): number {
  if (scaling.type === 'linear') return Math.floor(hf.max_position_embeddings * scaling.factor);
  if (scaling.type === 'yarn') return Math.floor(scaling.originalMaxPositions * scaling.factor);
  return hf.max_position_embeddings;
}

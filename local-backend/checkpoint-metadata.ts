import { z } from 'zod';
import type { TinkerPath } from '../shared/tinker/tinker-path.js';
import { checkpointKinds } from './checkpoint-names.js';

/** What `metadata.json` tells of a checkpoint: all that a loader must know before it reads weights. */
export const CheckpointMetadata = z.object({
  v: z.literal(1),
  training_run_id: z.string(),
  kind: z.enum(checkpointKinds),
  name: z.string(),
  created_at: z.iso.datetime(),
  base_model: z.string(),
  base_model_digest: z.string(), // the weights that the adapter belongs to
  lora_rank: z.int().positive(),
  lora_alpha: z.number().positive(),
  train_attn: z.boolean(),
  train_mlp: z.boolean(),
  train_unembed: z.boolean(), // as it was asked for; this backend adapts no output head
  adapter_sha256: z.string(),
  size_bytes: z.int().nonnegative(),
  user_metadata: z.record(z.string(), z.unknown()).nullish(),
});
export type CheckpointMetadata = z.infer<typeof CheckpointMetadata>;

/** What decides whether the weights of one run fit into another. */
export type Geometry = Pick<
  CheckpointMetadata,
  'base_model' | 'base_model_digest' | 'lora_rank' | 'lora_alpha' | 'train_attn' | 'train_mlp'
>;

/** Why weights of geometry `saved` cannot be loaded into `wanted`, or undefined if they can. */
export function incompatibility(saved: Geometry, wanted: Geometry): string | undefined {
  const keys = [
    'base_model',
    'base_model_digest',
    'lora_rank',
    'lora_alpha',
    'train_attn',
    'train_mlp',
  ] as const;
  const differing = keys.filter((key) => saved[key] !== wanted[key]);
  if (differing.length === 0) return undefined;
  return differing
    .map((key) => `${key} is ${saved[key]} in the checkpoint and ${wanted[key]} here`)
    .join('; ');
}

export function pathOf(metadata: CheckpointMetadata): TinkerPath {
  return { runId: metadata.training_run_id, kind: metadata.kind, name: metadata.name };
}

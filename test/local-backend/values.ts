import type { CheckpointMetadata, CheckpointStore } from '../../local-backend/checkpoint-store.js';
import type { ModelConfig } from '../../shared/model/model-config.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';

/** A directory that is never read. Without a chat template it has the digest that `checkpointAbout` names. */
export function unreadDirectory(config: ModelConfig): ModelDirectory {
  const digest = 'digest';
  return { path: 'nowhere', config, digest, digestWithoutTemplate: digest, stamps: new Map() };
}

/** Metadata of a valid checkpoint with the given changes. */
export function checkpointAbout(
  given: Partial<CheckpointMetadata> = {},
): Parameters<CheckpointStore['save']>[0] {
  return {
    v: 1,
    training_run_id: 'run',
    kind: 'sampler_weights',
    name: 'v1',
    created_at: '2026-01-01T00:00:00.000Z',
    base_model: 'base',
    base_model_digest: 'digest',
    lora_rank: 4,
    lora_alpha: 8,
    train_attn: true,
    train_mlp: true,
    train_unembed: false,
    ...given,
  };
}

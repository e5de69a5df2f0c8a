import { createAdapter, encodeAdapter, type Adapter } from '../../shared/model/lora.js';
import type { ModelConfig } from '../../shared/model/model-config.js';
import { createRandom } from '../../shared/base/random.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { manifest } from './values.js';

const scale = { rank: 4, alpha: 8 };

/** A version's adapter. Every version's is different, and far from changing nothing. */
export function adapterOf(version: number, config: ModelConfig): Adapter {
  const adapter = createAdapter(config, { ...scale, seed: version, attn: true, mlp: true });
  const random = createRandom(`adapter ${version}`);
  for (const [key, { data }] of adapter.tensors) {
    if (key.endsWith('lora_B')) data.forEach((_, i) => (data[i] = random.next() - 0.5));
  }
  return adapter;
}

/** The same as it is published: the file and its scale. */
export function publishedAdapter(version: number, config: ModelConfig) {
  return { bytes: encodeAdapter(adapterOf(version, config)).safetensors, ...scale };
}

/** The manifest of a version that hands out its weights. */
export function manifestWithAdapter(version: number): PolicyManifest {
  const uri = `nats:adapter-${version}`;
  const adapter = { uri, sha256: '0'.repeat(64), bytes: 1, ...scale };
  return manifest(version, { adapter });
}

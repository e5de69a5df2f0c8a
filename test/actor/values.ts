import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';

/** A valid manifest of a version that is sampled by the backend, but for what the test names. */
export function manifest(version: number, named: Partial<PolicyManifest> = {}): PolicyManifest {
  return {
    v: 1,
    version,
    samplerPath: `tinker://run/sampler_weights/v${version}`,
    samplingSessionId: `session-${version}`,
    smallestUsefulVersion: 0,
    publishedAt: 0,
    ...named,
  };
}

/** A proof that whatever samples passes. */
export const unproven = (): Promise<void> => Promise.resolve();

import { canaryDigest } from '../shared/wire/canary.js';
import type { PolicyManifest } from '../shared/wire/policy-manifest.js';

/** The time from the publication of a version to its first token on this actor. */
export interface FirstToken {
  readonly version: number;
  readonly seconds: number;
}

/** Whether the manifest is newer, or the same version published again, e.g. with a new sampling session. */
export function supersedes(manifest: PolicyManifest, known: PolicyManifest | undefined): boolean {
  if (known === undefined || manifest.version > known.version) return true;
  return manifest.version === known.version && manifest.publishedAt > known.publishedAt;
}

/** Whether a sampler that has loaded one publication of a version need not load the other. */
export function isSamePolicy(a: PolicyManifest, b: PolicyManifest): boolean {
  const isSameAdapter =
    a.adapter === undefined ||
    b.adapter === undefined || // then the sampler does not use it
    (a.adapter.sha256 === b.adapter.sha256 && a.adapter.alpha === b.adapter.alpha);
  const canaryOf = ({ version, canary }: PolicyManifest) => canary && canaryDigest(version, canary);
  return (
    isSameAdapter &&
    a.samplerPath === b.samplerPath &&
    a.samplingSessionId === b.samplingSessionId &&
    canaryOf(a) === canaryOf(b)
  );
}

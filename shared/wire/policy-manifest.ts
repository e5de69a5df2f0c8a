import { z } from 'zod';
import { Canary, canaryDigest } from './canary.js';

/** The number format of an adapter's weights, by its name in safetensors files. */
export const AdapterFormat = z.enum(['F32', 'F16', 'BF16']);
export type AdapterFormat = z.infer<typeof AdapterFormat>;

/** Largest adapter that is published or read, in bytes. */
export const maxAdapterBytes = 2 ** 31;

const contents = {
  expiresAt: z.number().optional(), // ms since the epoch; of a link, which the learner renews before
  files: z.string().startsWith('tinker://').optional(), // what the backend saved for download
  format: AdapterFormat.optional(), // absent: a learner that did not look published it
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  bytes: z.int().positive().max(maxAdapterBytes),
  rank: z.int().positive(),
  alpha: z.number().positive(),
};

/**
 * `nats:OBJECT` in the run's object store; `https://` or `http://`, perhaps a signed link, which is then a secret; or
 * `file:///PATH` on a volume that the actors have under the same path.
 */
const AdapterUri = z.string().max(8_192).refine(isAdapterUri, {
  error: 'expected nats:OBJECT, an https or http address without a user, or file:///PATH',
});

/** A PEFT `adapter_model.safetensors`: where it is, and what shows that it is the right one. */
const Located = z.strictObject({ uri: AdapterUri, ...contents });

/** Older learners, whose adapters were all in the object store, named only the object. */
const OnWire = z
  .strictObject({ uri: AdapterUri.optional(), object: z.string().min(1).optional(), ...contents })
  .refine(({ uri, object }) => (uri === undefined) !== (object === undefined), {
    path: ['uri'],
    error: 'expected where the adapter is, once',
  });

const PublishedAdapter = z.codec(OnWire, Located, {
  decode: ({ uri, object, ...rest }) => ({ uri: uri ?? objectUri(object ?? ''), ...rest }),
  encode: (adapter) => adapter,
});
export type PublishedAdapter = z.output<typeof PublishedAdapter>;

/** One published policy version: where its weights are and how to sample with it. */
export const PolicyManifest = z.strictObject({
  v: z.literal(1),
  version: z.int().nonnegative(), // 0 is the base policy; each step makes the next
  samplerPath: z.string().startsWith('tinker://'),
  samplingSessionId: z.string().min(1).optional(), // shared by all actors that sample on the backend
  adapter: PublishedAdapter.optional(), // absent if the backend does not export weights, or no actor has asked
  adapterOnRequest: z.literal(true).optional(), // published as soon as the lease of an actor shows that it samples by itself
  canary: Canary.optional(), // to be reproduced before sampling; absent: the trainer could not compute it
  smallestUsefulVersion: z.int().nonnegative(), // older rollouts can no longer be trained on
  consumedBelow: z.int().nonnegative().optional(), // training tickets of lower orders have ended
  quarantined: z.array(z.string().min(1).max(128)).optional(), // actors whose groups are refused
  publishedAt: z.number(), // ms since the epoch
});
export type PolicyManifest = z.output<typeof PolicyManifest>;

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

const objectScheme = 'nats:';

/** The address of an object in the run's object store. */
export function objectUri(object: string): string {
  return objectScheme + object;
}

/** The name of the object in the run's object store; undefined if the adapter is elsewhere. */
export function objectOf({ uri }: Pick<PublishedAdapter, 'uri'>): string | undefined {
  return uri.startsWith(objectScheme) ? uri.slice(objectScheme.length) : undefined;
}

function isAdapterUri(text: string): boolean {
  if (text.startsWith(objectScheme)) return text.length > objectScheme.length;
  if (!URL.canParse(text)) return false;
  const { protocol, username, password, host, pathname } = new URL(text);
  if (protocol === 'file:') return host === '' && !/%2f/i.test(pathname);
  return ['http:', 'https:'].includes(protocol) && username === '' && password === '';
}

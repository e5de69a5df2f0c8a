import type { IncomingHttpHeaders } from 'node:http';
import { isSameKey } from '../shared/service/keys.js';
import { ApiError } from './api-error.js';

/** The keys of this backend. Actors get the second: they are many, and trusted with nothing but sampling. */
export interface ApiKeys {
  readonly apiKey: string; // may do everything
  readonly samplingApiKey?: string | undefined; // may sample from what was saved, and nothing else
}

/** What a request may do by the key that it brings. */
export type Access = 'all' | 'sampling';

/**
 * What the key in `X-API-Key` allows. Every key is compared, and each comparison takes as long for a
 * nearly right one as for any other.
 *
 * @throws {ApiError} 401 without a key, 403 with another.
 */
export function accessOf(headers: IncomingHttpHeaders, keys: ApiKeys): Access {
  const given = headers['x-api-key'];
  if (given === undefined) throw new ApiError(401, 'Missing API key: send it in X-API-Key');
  const isFull = isSameKey(String(given), keys.apiKey);
  const { samplingApiKey } = keys;
  const isSampling = samplingApiKey !== undefined && isSameKey(String(given), samplingApiKey);
  if (isFull) return 'all';
  if (isSampling) return 'sampling';
  throw new ApiError(403, 'Invalid API key');
}

import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ApiError } from './api-error.js';

/**
 * Lets a request pass that carries the key in `X-API-Key`. The comparison takes as long for a key
 * that is nearly right as for any other.
 *
 * @throws {ApiError} 401 without a key, 403 with another.
 */
export function assertAuthorized(headers: IncomingHttpHeaders, apiKey: string): void {
  const given = headers['x-api-key'];
  if (given === undefined) throw new ApiError(401, 'Missing API key: send it in X-API-Key');
  if (!timingSafeEqual(digest(String(given)), digest(apiKey))) {
    throw new ApiError(403, 'Invalid API key');
  }
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

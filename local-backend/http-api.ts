import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { z } from 'zod';
import { excessIn, type JsonBounds } from '../shared/base/json-bounds.js';
import type { Reply } from '../shared/service/http-server.js';
import { isSameKey } from '../shared/service/keys.js';

/** A refusal by the Tinker API: the HTTP status and the content of `{"detail": …}`. */
export class ApiError extends Error {
  override readonly name: string = 'ApiError';

  constructor(
    readonly status: number,
    /** Text, or a list of schema violations in FastAPI's form, which the API's clients parse. */
    readonly detail: string | readonly SchemaViolation[],
    readonly headers: Readonly<Record<string, string>> = {},
  ) {
    super(typeof detail === 'string' ? detail : detail.map(violationText).join('; '));
  }
}

interface SchemaViolation {
  readonly type: string;
  readonly loc: readonly (string | number)[];
  readonly msg: string;
}

function violationText({ loc, msg }: SchemaViolation): string {
  return `${loc.join('.')}: ${msg}`;
}

/** 400: the request is well-formed but cannot be carried out. */
export function badRequest(detail: string): ApiError {
  return new ApiError(400, detail);
}

/** 404: the session, run, checkpoint or request does not exist. */
export function notFound(detail: string): ApiError {
  return new ApiError(404, detail);
}

/** The API keys of this backend. Actors get the sampling key: they are many and only need to sample. */
export interface ApiKeys {
  readonly apiKey: string; // allows everything
  readonly samplingApiKey?: string | undefined; // allows sampling from saved weights only
}

/** The access that the key of a request grants. */
export type Access = 'all' | 'sampling';

/**
 * Returns what the key in `X-API-Key` permits. It is compared with every key, each time in constant
 * time, so that timing does not reveal how much of a wrong key is right.
 *
 * @throws {ApiError} 401 without a key, 403 with an unknown one.
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

/** A request as a route receives it. */
export interface ApiRequest {
  readonly headers: IncomingMessage['headers'];
  readonly access: Access; // permitted by its key
  readonly query: URLSearchParams;
  /** The values of the route's `:name` and `*`, in order. */
  readonly params: readonly string[];
  /** Aborts when the client disconnects or the server stops. */
  readonly signal: AbortSignal;
  /**
   * @param maxBytes by default the limit of the largest route.
   * @throws {ApiError} 413 above it.
   */
  body(maxBytes?: number): Promise<Buffer>;
}

export interface Route {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  // `/a/:x/b`; a `*` stands for one or more parts, as in `/a/*` and `/a/*/b`.
  readonly path: string;
  /** `open`: no key is required; `sampling`: the sampling key suffices. By default the full key is required. */
  readonly access?: 'open' | 'sampling';
  handle(request: ApiRequest): Reply | Promise<Reply>;
}

export function jsonReply(status: number, value: unknown): Reply {
  const body = JSON.stringify(value);
  return { status, headers: { 'content-type': 'application/json' }, body };
}

/** Limits of a JSON body, checked before it is parsed. */
export interface BodyBounds extends JsonBounds {
  readonly bytes: number;
}

/** Limits of a body with names, numbers and metadata. */
const smallBody: BodyBounds = { bytes: 2 ** 20, values: 20_000, containers: 5_000, depth: 32 };

const shownIssues = 20;

/**
 * Returns the request's JSON body, validated by `schema`.
 *
 * @param onInvalid called with JSON that violates the schema, before the refusal is thrown.
 * @throws {ApiError} 413 for a body beyond its bounds; 415 for another content type; 422 with the schema
 *   violations in FastAPI's form.
 */
export async function readJson<Schema extends z.ZodType>(
  request: ApiRequest,
  schema: Schema,
  bounds: BodyBounds = smallBody,
  onInvalid: (json: unknown, refusal: ApiError) => void = () => undefined,
): Promise<z.output<Schema>> {
  const type = request.headers['content-type'];
  if (type?.split(';')[0]?.trim() !== 'application/json') {
    throw new ApiError(415, `content-type is ${type ?? 'missing'}, expected application/json`);
  }
  const bytes = await request.body(bounds.bytes);
  const excess = excessIn(bytes, bounds);
  if (excess !== undefined) {
    throw new ApiError(
      413,
      `the body of ${bytes.byteLength} bytes has ${excess}; send it in parts`,
    );
  }
  const text = bytes.toString('utf8');
  let json: unknown;
  try {
    json = JSON.parse(keepLongIntegers(text));
  } catch {
    throw new ApiError(422, [{ type: 'json_invalid', loc: ['body'], msg: 'the body is not JSON' }]);
  }
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  const refusal = new ApiError(
    422,
    parsed.error.issues.slice(0, shownIssues).map(({ code, path, message }) => ({
      type: code,
      loc: ['body', ...path.map((part) => (typeof part === 'number' ? part : String(part)))],
      msg: message,
    })),
  );
  onInvalid(json, refusal);
  throw refusal;
}

/** Quotes sequence ids and seeds that may exceed 2^53, so that parsing keeps every digit. */
function keepLongIntegers(text: string): string {
  return text.replace(/("(?:seq_id|seed)"\s*:\s*)(-?[0-9]{16,20})(?=\s*[,}])/g, '$1"$2"');
}

/** Returns `limit` and `offset` of a listing. @throws {ApiError} 422 */
export function readPage(
  query: URLSearchParams,
  defaultLimit: number,
): { limit: number; offset: number } {
  const read = (name: string, fallback: number, least: number): number => {
    const text = query.get(name);
    if (text === null) return fallback;
    const value = Number(text);
    if (Number.isSafeInteger(value) && value >= least) return value;
    const msg = `${JSON.stringify(text)} is not an integer of at least ${least}`;
    throw new ApiError(422, [{ type: 'int_parsing', loc: ['query', name], msg }]);
  };
  return { limit: read('limit', defaultLimit, 1), offset: read('offset', 0, 0) };
}

/** Returns the values of `:name` and `*` in `path`, or undefined if it does not match `pattern`. */
export function matchPath(pattern: string, path: string): string[] | undefined {
  const expected = pattern.split('/');
  const found = path.split('/');
  const star = expected.indexOf('*');
  if (star >= 0 && found.length > expected.length) {
    const parts = found.splice(star, found.length - expected.length + 1);
    found.splice(star, 0, parts.join('/'));
  }
  if (found.length !== expected.length) return undefined;
  const params: string[] = [];
  for (const [i, part] of expected.entries()) {
    if (part === '*' || part.startsWith(':')) params.push(found[i]!);
    else if (part !== found[i]) return undefined;
  }
  return params.some((param) => param === '') ? undefined : params;
}

/** Returns the seed as a number; a seed that a double cannot hold is hashed to 48 bits. */
export function narrowSeed(seed: number | bigint | string): number {
  if (typeof seed === 'number') return seed;
  return createHash('sha256').update(String(seed)).digest().readUIntBE(0, 6);
}

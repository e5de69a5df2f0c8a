/** Whether an answer says "not now": it may be asked again without changing anything. */
export function isTransient(status: number, headers: Headers, isEmpty: boolean): boolean {
  const asked = headers.get('x-should-retry');
  if (asked === 'true' || asked === 'false') return asked === 'true';
  // A 400 without a body comes from a proxy in between: no Tinker server answers so.
  return status === 408 || status === 429 || status >= 500 || (status === 400 && isEmpty);
}

/**
 * How long to wait before the next attempt, in ms: what the server asks for, else 0.5 s doubling to
 * 30 s, less up to a quarter, so that many clients do not come back at once.
 *
 * @param attempt 0 after the first failure.
 * @param random in [0, 1).
 */
export function retryDelayMs(
  attempt: number,
  headers: Headers | undefined,
  random: number,
  now: Date = new Date(),
): number {
  const asked = headers && askedDelayMs(headers, now);
  if (asked !== undefined && asked > 0 && asked <= 60_000) return asked;
  return Math.min(500 * 2 ** attempt, 30_000) * (1 - 0.25 * random);
}

function askedDelayMs(headers: Headers, now: Date): number | undefined {
  const ms = headers.get('retry-after-ms');
  if (ms !== null && Number.isFinite(Number(ms))) return Number(ms);
  const after = headers.get('retry-after');
  if (after === null) return undefined;
  if (Number.isFinite(Number(after))) return Number(after) * 1000;
  const date = Date.parse(after);
  return Number.isNaN(date) ? undefined : date - now.getTime();
}

/**
 * Whether a failed fetch certainly never reached the server, so that repeating it cannot do the work
 * twice. A reset or a timeout leaves that open.
 */
export function wasNeverSent(caught: unknown): boolean {
  const code = codeOf(caught);
  return code !== undefined && beforeConnection.has(code);
}

/** Whether a fetch failed because nothing listens at the address: the host is there, its server not. */
export function wasRefused(caught: unknown): boolean {
  return codeOf(caught) === 'ECONNREFUSED';
}

function codeOf(caught: unknown): string | undefined {
  const cause = caught instanceof Error ? caught.cause : undefined;
  const code = (cause as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}

const beforeConnection = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** Why a request is not answered. */
export interface Refusal {
  readonly status: 405 | 421;
  readonly reason: string;
}

/** Names of this machine for itself, with any port: a tunnel may have another one than we do. */
const ownNames = /^(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?$/i;

/**
 * Whether to answer: only reads, and only for who asked for this machine by its own name. A page of a
 * stranger could otherwise have its own name resolve to loopback, and read everything here.
 */
export function refusalOf(
  method: string | undefined,
  host: string | undefined,
): Refusal | undefined {
  if (method !== 'GET') return { status: 405, reason: 'only GET is answered\n' };
  if (host === undefined || !ownNames.test(host)) {
    return { status: 421, reason: 'ask for this page as localhost or 127.0.0.1\n' };
  }
  return undefined;
}

/** What a browser may do with anything of ours: load what is ours, and nothing else from anywhere. */
export const safeHeaders: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
};

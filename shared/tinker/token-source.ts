/**
 * Short-lived tokens in place of the API key, where the server asks for them (the hosted service
 * does). A token is renewed in the background once it has less than 5 minutes left, and awaited once
 * it has less than one.
 *
 * Source: the Python SDK 0.25, which reads the expiry without checking the signature (§1.2 of the
 * protocol reference).
 */
export class TokenSource {
  #token = '';
  #expiresAt = 0; // ms since the epoch
  #pausedUntil = 0;
  #renewal: Promise<void> | undefined;

  constructor(
    private readonly exchange: (signal: AbortSignal) => Promise<string>,
    private readonly epochNow: () => number = Date.now,
  ) {}

  /** A token that is good for the next request. Fails as the exchange does, once none is left. */
  async token(signal: AbortSignal): Promise<string> {
    const leftMs = this.#expiresAt - this.epochNow();
    if (leftMs <= 60_000) await this.#renew(signal);
    else if (leftMs <= 5 * 60_000 && this.epochNow() >= this.#pausedUntil) {
      this.#renew(signal).catch(() => {
        this.#pausedUntil = this.epochNow() + 60_000;
      });
    }
    return this.#token;
  }

  #renew(signal: AbortSignal): Promise<void> {
    this.#renewal ??= this.exchange(signal)
      .then((token) => {
        this.#token = token;
        // A token that does not say when it ends is taken for good for ten minutes.
        this.#expiresAt = expiryOf(token) ?? this.epochNow() + 10 * 60_000;
      })
      .finally(() => {
        this.#renewal = undefined;
      });
    return this.#renewal;
  }
}

/** The `exp` claim of a JWT, in ms since the epoch. */
function expiryOf(jwt: string): number | undefined {
  try {
    const claims: unknown = JSON.parse(
      Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString(),
    );
    const exp = (claims as { exp?: unknown } | null)?.exp;
    return typeof exp === 'number' ? exp * 1000 : undefined;
  } catch {
    return undefined;
  }
}

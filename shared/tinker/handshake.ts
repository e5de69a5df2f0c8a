import type { z } from 'zod';
import { markHandled, unlessAborted } from '../base/task-scope.js';
import {
  AuthTokenResponse,
  ClientConfigRequest,
  ClientConfigResponse,
  ServerCapabilities,
} from './api.js';
import type { TinkerHttp } from './http.js';
import { sdkVersion } from './session.js';

type ServedModelJson = z.output<typeof ServerCapabilities>['supported_models'][number];

/** A model that the server trains or samples. */
export interface ServedModel {
  readonly name: string;
  readonly maxContextLength?: number; // tokens
  readonly capabilities?: readonly string[]; // training, sampling; absent if the server does not say
}

/** The server's description of itself, before any session. */
interface Handshake {
  readonly config: ClientConfigResponse;
  readonly models: ServedModel[];
}

/**
 * Reads the server's configuration, switches to short-lived tokens if the server requires them, and lists its models.
 *
 * @param patienceMs how long to wait for a server that is just starting.
 */
export async function shakeHands(
  http: TinkerHttp,
  apiKey: string,
  patienceMs: number,
  signal: AbortSignal,
): Promise<Handshake> {
  const config = await fetchConfig(http, patienceMs, signal);
  http.billingPauseMs = config.billing_exception_max_pause_duration_sec * 1000;
  if (config.pjwt_auth_enabled) useTokens(http, apiKey, signal);
  return { config, models: await fetchModels(http, signal) };
}

/**
 * Timeout of one attempt. These answers are small, and one lost request must not use up the whole retry
 * budget of a start.
 */
const attemptMs = 10_000;

async function fetchConfig(
  http: TinkerHttp,
  patienceMs: number,
  signal: AbortSignal,
): Promise<ClientConfigResponse> {
  const json = ClientConfigRequest.parse({ sdk_version: sdkVersion });
  const request = {
    operation: 'client/config',
    path: '/api/v1/client/config',
    body: { json },
    timeoutMs: attemptMs,
  };
  const answer = await http.call(request, signal, { retryBudget: http.retryBudget(patienceMs) });
  return answer.parse(ClientConfigResponse);
}

async function fetchModels(http: TinkerHttp, signal: AbortSignal): Promise<ServedModel[]> {
  const path = '/api/v1/get_server_capabilities';
  const operation = 'get_server_capabilities';
  const request = { operation, method: 'GET', path, timeoutMs: attemptMs } as const;
  const answer = await http.call(request, signal);
  return answer.parse(ServerCapabilities).supported_models.flatMap((model) => {
    if (model.model_name === undefined) return [];
    const capabilities = capabilitiesOf(model);
    return {
      name: model.model_name,
      ...(model.max_context_length !== undefined && { maxContextLength: model.max_context_length }),
      ...(capabilities && { capabilities }),
    };
  });
}

/** TuFT lists them; the hosted service has a field for each. What is absent there is not known to be missing. */
function capabilitiesOf({
  capabilities,
  trainable,
  sampleable,
}: Pick<ServedModelJson, 'capabilities' | 'trainable' | 'sampleable'>): string[] | undefined {
  if (capabilities !== undefined) return capabilities;
  if (trainable === undefined && sampleable === undefined) return undefined;
  return [
    ...(trainable === false ? [] : ['training']),
    ...(sampleable === false ? [] : ['sampling']),
  ];
}

/** @param signal ends the client, and with it an exchange: it is not that of the request which happens to need the token first. */
function useTokens(http: TinkerHttp, apiKey: string, signal: AbortSignal): void {
  const tokens = new TokenSource(async () => {
    const path = '/api/v1/auth/token';
    const request = { operation: 'auth/token', path, body: { json: {} }, credential: apiKey };
    return (await http.call(request, signal)).parse(AuthTokenResponse).jwt;
  });
  http.credential = (asking) => tokens.token(asking);
}

/**
 * Short-lived tokens instead of the API key, if the server requires them (the hosted service does). A token
 * is renewed in the background once it has less than 5 minutes left, and awaited once it has less than one.
 *
 * Source: the Python SDK 0.25, which reads the expiry without checking the signature (§1.2 of the
 * protocol reference).
 */
class TokenSource {
  #token = '';
  #expiresAt = 0; // ms since the epoch
  #pausedUntil = 0;
  #renewal: Promise<void> | undefined;

  constructor(
    private readonly exchange: () => Promise<string>,
    private readonly epochNow: () => number = Date.now,
  ) {}

  /** Returns a token that is valid for the next request. Rejects like the exchange once no valid token is left. */
  async token(signal: AbortSignal): Promise<string> {
    const leftMs = this.#expiresAt - this.epochNow();
    if (leftMs <= 60_000) await unlessAborted(markHandled(this.#renew()), signal);
    else if (leftMs <= 5 * 60_000 && this.epochNow() >= this.#pausedUntil) {
      this.#renew().catch(() => {
        this.#pausedUntil = this.epochNow() + 60_000;
      });
    }
    return this.#token;
  }

  #renew(): Promise<void> {
    this.#renewal ??= this.exchange()
      .then((token) => {
        this.#token = token;
        // A token without an expiry is assumed valid for ten minutes.
        this.#expiresAt = expiryOf(token, this.epochNow()) ?? this.epochNow() + 10 * 60_000;
      })
      .finally(() => {
        this.#renewal = undefined;
      });
    return this.#renewal;
  }
}

/**
 * When a JWT expires by the clock of this machine, which may differ from the server's: if it names when it was issued, its
 * validity counts from now, else its `exp` claim counts.
 *
 * @param now ms since the epoch.
 * @returns ms since the epoch; undefined if it does not say.
 */
function expiryOf(jwt: string, now: number): number | undefined {
  try {
    const claims: unknown = JSON.parse(
      Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString(),
    );
    const { exp, iat } = claims as { exp?: unknown; iat?: unknown };
    if (typeof exp !== 'number') return undefined;
    return typeof iat === 'number' ? now + (exp - iat) * 1_000 : exp * 1_000;
  } catch {
    return undefined;
  }
}

import { setTimeout as sleep } from 'node:timers/promises';
import { errorText, UserError } from '../../base/errors.js';
import { printError } from '../telemetry/print-error.js';
import type { Environment } from '../config.js';

/** Access to the Hugging Face hub. */
export interface Hub {
  readonly endpoint: string; // https://huggingface.co
  readonly token?: string;
  readonly wait: (ms: number) => Promise<unknown>;
  readonly report: (line: string) => void; // prints why it takes longer
  readonly stallMs: number; // timeout of a response without further data
}

/** A repository of the hub. */
export interface Repository {
  readonly kind: 'datasets' | 'models';
  readonly name: string; // OWNER/NAME
}

/** What can be the name of a repository. */
export const repositoryPattern = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*$/;

/** The hub from HF_ENDPOINT and HF_TOKEN, as for its own tools. */
export function hubOf(env: Environment): Hub {
  const { HF_ENDPOINT: endpoint, HF_TOKEN: token } = env;
  return {
    endpoint: (endpoint || 'https://huggingface.co').replace(/\/+$/, ''),
    ...(token !== undefined && token !== '' && { token }),
    wait: (ms) => sleep(ms),
    report: printError,
    stallMs: 30_000,
  };
}

/** A failure of the hub that a retry may resolve. */
export class HubFailure extends Error {
  override readonly name = 'HubFailure';
}

/** Retries last more than a minute; then the user gets the error. */
const maxAttempts = 6;

/**
 * Retries after network failures, with pauses of 1 s, 2 s, 4 s, …, and reports each.
 *
 * @throws {HubFailure} with the last failure.
 * @throws what else `attempt` throws, at once.
 */
export async function persistently<T>(hub: Hub, attempt: () => Promise<T>): Promise<T> {
  for (let attempts = 1; ; attempts++) {
    try {
      return await attempt();
    } catch (caught) {
      if (!(caught instanceof HubFailure) || attempts === maxAttempts) throw caught;
      const seconds = 2 ** (attempts - 1);
      hub.report(
        `${caught.message}; trying again in ${seconds} s (attempt ${attempts + 1} of ${maxAttempts})`,
      );
      await hub.wait(1_000 * seconds);
    }
  }
}

/**
 * Requests a path of the hub. Redirects to another origin get no token, because fetch drops it.
 *
 * @throws {HubFailure} if it does not answer, or is temporarily unavailable.
 * @throws {UserError} if it refuses.
 */
export async function ask(
  hub: Hub,
  path: string,
  { headers = {}, signal }: { headers?: Readonly<Record<string, string>>; signal: AbortSignal },
): Promise<Response> {
  const url = `${hub.endpoint}${path}`;
  const authorization = hub.token === undefined ? {} : { authorization: `Bearer ${hub.token}` };
  let response: Response;
  try {
    response = await fetch(url, { headers: { ...headers, ...authorization }, signal });
  } catch (caught) {
    throw new HubFailure(`${url} does not answer (${reasonOf(caught)})`, { cause: caught });
  }
  const { status } = response;
  if (response.ok || status === 416) return response;
  await response.body?.cancel();
  if (status === 401 || status === 403) {
    const isGated = response.headers.get('x-error-code') === 'GatedRepo';
    const why = isGated ? 'its owner asks for consent to terms' : 'it is not there, or not for all';
    const terms = isGated ? 'accept them on its page in a browser; ' : '';
    const remedy =
      hub.token === undefined ? 'set HF_TOKEN to a token that may' : 'HF_TOKEN may not';
    throw new UserError(`${url} answered ${status}: ${why}; ${terms}${remedy} read it`);
  }
  if (status === 404) {
    throw new UserError(`${url} answered 404: there is no such repository, revision or file`);
  }
  throw new HubFailure(`${url} answered ${status}`);
}

/** The cause of a failed fetch, whose own message is only `fetch failed`. */
export function reasonOf(caught: unknown): string {
  return errorText(caught instanceof Error && caught.cause !== undefined ? caught.cause : caught);
}

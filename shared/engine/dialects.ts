import { z } from 'zod';
import type { AdapterServer } from './adapter-server.js';
import { EngineHttp, unlessRefused } from './engine-http.js';
import { SglangServer } from './sglang-server.js';
import { VllmServer } from './vllm-server.js';

const dialects = { vllm: VllmServer, sglang: SglangServer } as const;

/** The server of a kind at an address. */
export function serverOf(
  kind: AdapterServer['kind'],
  url: string,
  apiKey: string | undefined,
): AdapterServer {
  return new dialects[kind](new EngineHttp(url, apiKey));
}

/**
 * The server at an address, by the routes that it has.
 *
 * @returns undefined if it is neither vLLM nor SGLang.
 * @throws {EngineDown} if nothing answers.
 * @throws {UserError} if it wants another key.
 */
export async function recognizedServer(
  url: string,
  apiKey: string | undefined,
  signal: AbortSignal,
): Promise<AdapterServer | undefined> {
  const http = new EngineHttp(url, apiKey);
  const has = async (path: string, schema: z.ZodType): Promise<boolean> => {
    const request = { method: 'GET', path, limitMs: 10_000 } as const;
    const text = await unlessRefused(http.text(request, signal));
    return text !== undefined && schema.safeParse(parsed(text)).success;
  };
  if (await has('/version', z.object({ version: z.string() }))) return new VllmServer(http);
  const settings = z.object({ max_loras_per_batch: z.unknown() });
  for (const path of ['/server_info', '/get_server_info']) {
    if (await has(path, settings)) return new SglangServer(http);
  }
  return undefined;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

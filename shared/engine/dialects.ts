import type { AdapterServer } from './adapter-server.js';
import { EngineHttp } from './engine-http.js';
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

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { startLocalBackend, type LocalBackend } from '../../local-backend/local-backend.js';
import {
  decodeForwardBackwardResult,
  encodeForwardBackwardRequest,
  protobufType,
} from '../../shared/tinker/codec.js';
import { decodeSampleResult } from '../../shared/tinker/sample-codec.js';
import type { Datum } from '../../shared/rl/datum.js';
import type { ForwardBackwardRequest } from '../../shared/tinker/types.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { silent } from '../support/log.js';

export { tinyModel } from '../support/tiny-model.js';

export const apiKey = 'tml-test-key';
export const modelName = 'test/tiny';

export interface Json {
  readonly [key: string]: unknown;
}

/** Starts the backend in this process, with its checkpoints next to the model. */
export async function startOn(
  modelDir: string,
  given: {
    pollMs?: number;
    loraAlpha?: number;
    gapWaitMs?: number;
    port?: number;
    samplingApiKey?: string;
    now?: () => number;
    unloadEveryMs?: number;
    checkpointDir?: string;
    lockPatienceMs?: number;
    log?: Logger;
  } = {},
): Promise<LocalBackend> {
  return startLocalBackend({
    host: '127.0.0.1',
    port: 0,
    apiKey,
    modelDir,
    modelName,
    checkpointDir: join(modelDir, 'checkpoints'),
    threads: 1,
    log: silent,
    ...given,
  });
}

/** A plain HTTP client that follows the protocol reference and uses no client code of this project. */
export class Wire {
  constructor(
    readonly url: string,
    private readonly key = apiKey,
  ) {}

  async fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers({
      'x-api-key': this.key,
      ...Object.fromEntries(new Headers(init.headers)),
    });
    return fetch(this.url + path, { redirect: 'manual', ...init, headers });
  }

  async post(path: string, body: unknown): Promise<Json> {
    const response = await this.tryPost(path, body);
    const json = (await response.json()) as Json;
    assert(response.ok, `${path} was answered ${response.status}: ${JSON.stringify(json)}`);
    return json;
  }

  tryPost(path: string, body: unknown): Promise<Response> {
    return this.fetch(`/api/v1/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  }

  async get(path: string): Promise<Json> {
    const response = await this.fetch(`/api/v1/${path}`);
    assert(response.ok, `${path} was answered ${response.status}`);
    return (await response.json()) as Json;
  }

  /** Polls until the future of `promise` settles; returns the response, whether it is a result or an error. */
  async poll(promise: Json, accept = 'application/json'): Promise<Response> {
    for (;;) {
      const response = await this.fetch('/api/v1/retrieve_future', {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept },
        body: JSON.stringify({ request_id: promise['request_id'] }),
      });
      if (response.headers.get('content-type') === protobufType) return response;
      const json = (await response.clone().json()) as Json;
      if (json['type'] !== 'try_again') return response;
    }
  }

  async result(promise: Json): Promise<Json> {
    return (await (await this.poll(promise)).json()) as Json;
  }

  async sendForwardBackward(request: ForwardBackwardRequest): Promise<Json> {
    const response = await this.fetch('/api/v1/forward_backward', {
      method: 'POST',
      headers: { 'content-type': protobufType },
      body: encodeForwardBackwardRequest(request),
    });
    assert.equal(response.status, 202, await response.clone().text());
    return (await response.json()) as Json;
  }

  async evaluation(promise: Json) {
    const response = await this.poll(promise, `${protobufType}, application/json`);
    assert.equal(response.headers.get('content-type'), protobufType, await response.clone().text());
    return decodeForwardBackwardResult(new Uint8Array(await response.arrayBuffer()));
  }

  async samples(promise: Json) {
    const response = await this.poll(promise, protobufType);
    assert.equal(response.headers.get('content-type'), protobufType, await response.clone().text());
    return decodeSampleResult(new Uint8Array(await response.arrayBuffer()));
  }

  async createSession(): Promise<string> {
    const body = { tags: [], user_metadata: {}, sdk_version: '0.25.0', type: 'create_session' };
    return String((await this.post('create_session', body))['session_id']);
  }

  async createModel(sessionId: string, modelSeqId = 0, rank = 4): Promise<string> {
    const promise = await this.post('create_model', createModelBody(sessionId, modelSeqId, rank));
    return String((await this.result(promise))['model_id']);
  }

  optimStep(modelId: string, seqId: number, learningRate = 1e-2): Promise<Json> {
    const adam_params = { learning_rate: learningRate, beta1: 0.9, beta2: 0.95, eps: 1e-8 };
    return this.post('optim_step', { adam_params, model_id: modelId, seq_id: seqId });
  }
}

export function createModelBody(sessionId: string, modelSeqId = 0, rank = 4): Json {
  return {
    session_id: sessionId,
    model_seq_id: modelSeqId,
    base_model: modelName,
    lora_config: { rank, seed: 3 },
    type: 'create_model',
  };
}

/** A cross-entropy datum for one sequence: the targets are the tokens shifted by one, each with weight 1. */
export function imitation(tokens: readonly number[]): Datum {
  const length = tokens.length - 1;
  return {
    tokens: Int32Array.from(tokens.slice(0, length)),
    targetTokens: Int32Array.from(tokens.slice(1)),
    inputs: { weights: new Float32Array(length).fill(1) },
  };
}

/** A cross-entropy request with two short sequences and the given changes. */
export function forwardBackward(
  modelId: string,
  seqId: number,
  given: Partial<ForwardBackwardRequest> = {},
): ForwardBackwardRequest {
  return {
    modelId,
    seqId,
    data: [imitation([3, 4, 5, 6, 7]), imitation([8, 9, 10])],
    loss: 'cross_entropy',
    config: {},
    isForwardOnly: false,
    ...given,
  };
}

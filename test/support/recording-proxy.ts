import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import {
  decodeForwardBackwardRequest,
  encodeForwardBackwardRequest,
} from '../../shared/tinker/codec.js';
import type { ForwardBackwardRequest } from '../../shared/tinker/types.js';
import { gate } from './waiting.js';

/** An operation that was requested from the backend. */
export interface RecordedCall {
  readonly operation: string; // the last part of its path
  readonly pass?: ForwardBackwardRequest; // for a forward or forward_backward
  readonly adam?: Readonly<Record<string, number>>; // for an optim_step, as in its body
}

/** A posted request and the backend's answer. */
export interface Exchange {
  readonly operation: string; // the last part of its path
  readonly body: Buffer;
  readonly isJson: boolean;
  readonly status: number;
  readonly answer: Buffer;
  readonly answerIsJson: boolean;
}

/** What another server of the Tinker API lacks. */
export interface Lacking {
  readonly losses?: readonly string[];
  readonly calls?: readonly string[]; // the last parts of their paths
  readonly capabilities?: readonly string[]; // of its models
}

/** A request on its way to the backend. */
export interface PassedRequest {
  readonly method: string;
  readonly path: string; // `/api/v1/forward_backward`, with its query
  readonly isJson: boolean;
  readonly body: Buffer;
}

export interface PassedAnswer {
  readonly status: number;
  readonly type: string; // of its content
  readonly body: Buffer;
}

/** Plays another server in front of the backend. */
export interface ServerRules {
  /** @returns the request as the backend gets it, or the other server's own answer. */
  request(given: PassedRequest): Promise<PassedRequest | PassedAnswer>;
  /** @param sent what the backend got. @returns the backend's answer as the other server would give it. */
  answer(given: PassedRequest, sent: PassedRequest, answer: PassedAnswer): Promise<PassedAnswer>;
}

/** Queued operations, whose results are polled. */
const queued = new Set([
  'forward_backward',
  'forward',
  'optim_step',
  'save_weights',
  'save_weights_for_sampler',
]);

/**
 * A proxy in front of a real backend that records its requests and can hold back its results. With `lacking` it plays
 * a lesser server: the backend refuses those losses as any that it does not know, and those calls are not there. With
 * `rules` it plays any other server.
 */
export class RecordingProxy implements AsyncDisposable {
  /**
   * The operations of training runs, in the order of their requests, without the question for losses at the start and the
   * passes for canaries, which follow each save of sampling weights.
   */
  readonly calls: RecordedCall[] = [];
  readonly #backendUrl: string;
  readonly #server: Server;
  readonly #operationOf = new Map<string, string>(); // by request id
  readonly #held = new Map<string, Promise<void>>(); // by operation
  #newest = ''; // operation

  /** @param answered called with every posted request once the backend has answered it. */
  static async before(
    backendUrl: string,
    answered?: (exchange: Exchange) => void,
    lacking: Lacking = {},
    rules?: ServerRules,
  ): Promise<RecordingProxy> {
    const proxy = new RecordingProxy(backendUrl, answered, lacking, rules);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  private constructor(
    backendUrl: string,
    private readonly answered: ((exchange: Exchange) => void) | undefined,
    private readonly lacking: Lacking,
    private readonly rules: ServerRules | undefined,
  ) {
    this.#backendUrl = backendUrl;
    this.#server = createServer((request, response) => {
      this.#pass(request, response).catch(() => response.destroy());
    });
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get operations(): string[] {
    return this.calls.map(({ operation }) => operation);
  }

  /** Holds back the results of an operation from now on. @returns a function that releases them. */
  hold(operation: string): () => void {
    const { opened, open } = gate();
    this.#held.set(operation, opened);
    return open;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET', url = '/' } = request;
    const body = await buffer(request);
    const operation = url.split('/').at(-1)!;
    if (this.lacking.calls?.includes(operation) === true) {
      const type = { 'content-type': 'application/json' };
      response.writeHead(404, type).end('{"detail":"Not Found"}');
      return;
    }
    const isJson = request.headers['content-type'] === 'application/json';
    const json = isJson ? (JSON.parse(body.toString()) as Record<string, unknown>) : {};
    const call = queued.has(operation)
      ? this.#named(callOf(operation, isJson ? json : body))
      : undefined;
    if (call !== undefined && !unrecorded.has(call.operation)) this.calls.push(call);
    if (operation === 'retrieve_future') {
      await this.#held.get(this.#operationOf.get(String(json['request_id'])) ?? '');
    }

    const given = { method, path: url, isJson, body };
    const sent = (await this.rules?.request(given)) ?? given;
    if ('status' in sent) {
      response.writeHead(sent.status, { 'content-type': sent.type }).end(sent.body);
      return;
    }

    const { host: _host, connection: _connection, ...rest } = request.headers;
    const { 'content-length': _length, ...headers } = rest;
    const answer = await fetch(this.#backendUrl + sent.path, {
      method,
      headers: headers as Record<string, string>,
      redirect: 'manual',
      ...(method === 'GET' ? {} : { body: this.#unknownLoss(call) ?? new Uint8Array(sent.body) }),
    });
    const bytes = this.#without(operation, Buffer.from(await answer.arrayBuffer()));
    if (this.rules !== undefined) {
      const type = answer.headers.get('content-type') ?? 'application/json';
      const whole = { status: answer.status, type, body: bytes };
      const turned = await this.rules.answer(given, sent, whole);
      response.writeHead(turned.status, { 'content-type': turned.type }).end(turned.body);
      return;
    }
    if (method === 'POST') {
      const { status } = answer;
      const type = answer.headers.get('content-type') ?? '';
      const answerIsJson = type.startsWith('application/json');
      this.answered?.({ operation, body, isJson, status, answer: bytes, answerIsJson });
    }
    if (call !== undefined && !isQuestion(call) && answer.ok) {
      const { request_id: id } = JSON.parse(bytes.toString()) as { request_id: string };
      this.#operationOf.set(id, call.operation);
    }
    const passedOn = [...answer.headers].filter(([name]) => !ownHeaders.has(name));
    response.writeHead(answer.status, Object.fromEntries(passedOn)).end(bytes);
  }

  /** The call, as `canary` if it is a forward right behind a save of sampling weights, and `question` if it asks for a loss. */
  #named(call: RecordedCall): RecordedCall {
    const isCanary = call.operation === 'forward' && this.#newest === 'save_weights_for_sampler';
    this.#newest = call.operation;
    if (isQuestion(call)) return { ...call, operation: 'question' };
    return isCanary ? { ...call, operation: 'canary' } : call;
  }

  /** The answer without the capabilities that are lacking. */
  #without(operation: string, answer: Buffer): Buffer {
    const { capabilities: lacking = [] } = this.lacking;
    if (operation !== 'get_server_capabilities' || lacking.length === 0) return answer;
    const { supported_models: models } = JSON.parse(answer.toString()) as {
      readonly supported_models: readonly { readonly capabilities: readonly string[] }[];
    };
    const lesser = models.map(({ capabilities, ...model }) => ({
      ...model,
      capabilities: capabilities.filter((name) => !lacking.includes(name)),
    }));
    return Buffer.from(JSON.stringify({ supported_models: lesser }));
  }

  /** The body of a pass whose loss is lacking, under a name that the backend does not know. */
  #unknownLoss(call: RecordedCall | undefined): Uint8Array<ArrayBuffer> | undefined {
    const pass = call?.pass;
    if (pass === undefined || this.lacking.losses?.includes(pass.loss) !== true) return undefined;
    const loss = `${pass.loss}_of_another_server` as typeof pass.loss;
    return new Uint8Array(encodeForwardBackwardRequest({ ...pass, loss }));
  }
}

const unrecorded = new Set(['canary', 'question']);

/** Headers that this hop sets itself, since it receives the body whole and unpacked. */
const ownHeaders = new Set([
  'connection',
  'content-encoding',
  'content-length',
  'transfer-encoding',
]);

/** Whether this is a pass with which the learner asks the backend whether it has a loss, or for a sequence id. */
function isQuestion({ operation, pass }: RecordedCall): boolean {
  const [datum, ...others] = pass?.data ?? [];
  const hasNoText = others.length === 0 && datum?.tokens.every((token) => token === 0) === true;
  return operation === 'forward' && hasNoText;
}

/** Distinguishes a forward, which is sent under the name of a forward_backward, by its content. */
function callOf(operation: string, body: Buffer | Readonly<Record<string, unknown>>): RecordedCall {
  if (Buffer.isBuffer(body)) {
    const pass = decodeForwardBackwardRequest(body);
    return { operation: pass.isForwardOnly ? 'forward' : operation, pass };
  }
  if (operation !== 'optim_step') return { operation };
  return { operation, adam: body['adam_params'] as Record<string, number> };
}

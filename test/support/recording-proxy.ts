import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import {
  decodeForwardBackwardRequest,
  encodeForwardBackwardRequest,
} from '../../shared/tinker/codec.js';
import type { ForwardBackwardRequest } from '../../shared/tinker/types.js';
import { gate } from './broker.js';

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
 * a lesser server: the backend refuses those losses as any that it does not know, and those calls are not there.
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
  ): Promise<RecordingProxy> {
    const proxy = new RecordingProxy(backendUrl, answered, lacking);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  private constructor(
    backendUrl: string,
    private readonly answered: ((exchange: Exchange) => void) | undefined,
    private readonly lacking: Lacking,
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

    const { host: _host, connection: _connection, ...rest } = request.headers;
    const { 'content-length': _length, ...headers } = rest;
    const answer = await fetch(this.#backendUrl + url, {
      method,
      headers: headers as Record<string, string>,
      redirect: 'manual',
      ...(method === 'GET' ? {} : { body: this.#unknownLoss(call) ?? body }),
    });
    const bytes = Buffer.from(await answer.arrayBuffer());
    if (method === 'POST') {
      const { status } = answer;
      const type = answer.headers.get('content-type') ?? '';
      const answerIsJson = type.startsWith('application/json');
      this.answered?.({ operation, body, isJson, status, answer: bytes, answerIsJson });
    }
    if (call !== undefined && answer.ok) {
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

/** Whether this is a pass of two tokens with which the learner asks whether the backend has a loss. */
function isQuestion({ operation, pass }: RecordedCall): boolean {
  const [datum, ...others] = pass?.data ?? [];
  const isTiny = others.length === 0 && datum?.tokens.join() === '0,0';
  return operation === 'forward' && isTiny;
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

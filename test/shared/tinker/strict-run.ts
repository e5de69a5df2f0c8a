import {
  decodeForwardBackwardRequest,
  encodeForwardBackwardResult,
} from '../../../shared/tinker/codec.js';
import type { TinkerClient } from '../../../shared/tinker/client.js';
import type { Datum } from '../../../shared/rl/datum.js';
import type { TrainingRun } from '../../../shared/tinker/training-run.js';
import type { Reply, ScriptedServer, Seen } from './scripted-server.js';

/** What happens to one request, besides what TuFT would do: by the position among all requests. */
export type Mishap =
  | 'lose-answer' // the work is done, the connection cut before the answer
  | 'lose-request' // cut before anything is done
  | 'fail' // the operation fails when its turn comes
  | Reply;

/**
 * Plays one training run with TuFT's sequence rules (§4.4 of the protocol reference): the id must be
 * the next one, a failed operation does not consume it, a copy of a done operation conflicts, and all
 * that shows only in the future. With `isForgiving`, copies are recognized and failures consume their
 * id, as in the embedded server.
 */
export class StrictRun {
  readonly done: string[] = []; // operations that ran, in order
  readonly mishaps = new Map<number, Mishap>(); // by position of the request, from 0
  nextSeqId = 1;
  #requests = 0;
  readonly #futures = new Map<string, Reply>();
  readonly #promised = new Map<number, string>();

  constructor(
    private readonly server: ScriptedServer,
    private readonly isForgiving = false,
  ) {
    server.on('POST create_model', () => this.#promise({ json: { model_id: 'run-1' } }));
    server.on('POST forward_backward', (request) => {
      const { seqId, data, isForwardOnly } = decodeForwardBackwardRequest(request.body);
      const name = `${isForwardOnly ? 'forward' : 'forward_backward'} ${data.length}`;
      const logprobs = data.map(({ tokens }) => Float32Array.from(tokens, (token) => -token));
      const metrics = { 'loss:sum': data.length };
      const bytes = encodeForwardBackwardResult('ppo', { logprobs, metrics });
      return this.#take(seqId, name, { bytes, type: 'application/x-protobuf' });
    });
    server.on('POST optim_step', (request) =>
      this.#take(seqIdOf(request), 'optim_step', { json: { metrics: { 'norm:max': 2 } } }),
    );
    for (const [path, kind] of [
      ['save_weights', 'weights'],
      ['save_weights_for_sampler', 'sampler_weights'],
    ] as const) {
      server.on(`POST ${path}`, (request) => {
        const name = String(request.json['path']);
        const json = { path: `tinker://run-1/${kind}/${name}`, type: path };
        return this.#take(seqIdOf(request), `${path} ${name}`, { json });
      });
    }
    server.on('POST load_weights', (request) =>
      this.#take(seqIdOf(request), `load_weights ${String(request.json['optimizer'])}`, {
        json: { path: request.json['path'], model_id: null },
      }),
    );
    server.on('POST retrieve_future', (request) => {
      const id = String(request.json['request_id']);
      return this.#futures.get(id) ?? { status: 404, json: { detail: 'Future not found' } };
    });
  }

  /** A new run of `client` on this server. */
  create(client: TinkerClient): Promise<TrainingRun> {
    return client.createLoraModel({ baseModel: 'base', rank: 4 });
  }

  /** The sequence ids in the order that the requests came in. */
  get seqIds(): number[] {
    return this.server.seen.flatMap((request) => {
      if (request.path === 'forward_backward') {
        return decodeForwardBackwardRequest(request.body).seqId;
      }
      const isSequenced = /^(optim_step|save_weights|load_weights)/.test(request.path);
      return isSequenced ? seqIdOf(request) : [];
    });
  }

  #take(seqId: number, name: string, result: Reply): Reply {
    const mishap = seqId === 0 ? undefined : this.mishaps.get(this.#requests++);
    if (mishap === 'lose-request') return 'cut';
    if (mishap !== undefined && mishap !== 'lose-answer' && mishap !== 'fail') return mishap;
    const known = this.#promised.get(seqId);
    if (this.isForgiving && known !== undefined) return { json: { request_id: known } };

    const promise = this.#promise(this.#execute(seqId, name, result, mishap === 'fail'));
    if (this.isForgiving && seqId > 0) this.#promised.set(seqId, promise.json.request_id);
    return mishap === 'lose-answer' ? 'cut' : promise;
  }

  #execute(seqId: number, name: string, result: Reply, isFailing: boolean): Reply {
    if (seqId !== this.nextSeqId) {
      const detail = `Sequence conflict: expected ${this.nextSeqId}, got ${seqId}.`;
      return this.isForgiving
        ? { json: { error: detail, category: 'user' } }
        : { status: 409, json: { detail: `Failed to retrieve future: ${detail}` } };
    }
    if (!isFailing || this.isForgiving) this.nextSeqId++;
    if (isFailing) {
      return { status: 422, json: { detail: 'Future failed: Server error: out of memory' } };
    }
    this.done.push(name);
    return result;
  }

  #promise(result: Reply) {
    const request_id = `future-${this.#futures.size}`;
    this.#futures.set(request_id, result);
    return { status: 202, json: { request_id, model_id: null } };
  }
}

/** A valid datum of some tokens. */
export function datum(...tokens: number[]): Datum {
  const zeros = new Float32Array(tokens.length);
  return {
    tokens: Int32Array.from(tokens),
    targetTokens: Int32Array.from(tokens),
    inputs: { logprobs: zeros, advantages: zeros },
  };
}

export const adam = {
  learningRate: 1e-3,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0,
  gradClipNorm: 1,
};

function seqIdOf(request: Seen): number {
  return Number(request.json['seq_id']);
}

import { createHash, randomInt, randomUUID } from 'node:crypto';
import type { z } from 'zod';
import {
  requestsOfAClient,
  type CreateSamplingSessionRequest,
  type SampleRequest,
} from '../shared/tinker/sampling-api.js';
import { parseTinkerPath, type TinkerPath } from '../shared/tinker/tinker-path.js';
import { noLogprob, type SampledSequence, type TopTokens } from '../shared/tinker/types.js';
import { type Access, ApiError, badRequest, notFound } from './http-api.js';
import {
  type CheckpointMetadata,
  type CheckpointStore,
  formatTinkerPath,
  pathOf,
} from './checkpoint-store.js';
import { keptSnapshots } from './checkpoint-expiry.js';
import type { FutureStore } from './futures.js';
import { ResendMemory } from './resend-memory.js';
import type { OperationResult } from './operation-result.js';
import { mostRows, planSample, SamplingQueue, ScoringQueue } from './sampling-requests.js';
import { rowsAtOnce } from '../shared/model/parameters.js';
import { assertServed, type ServedModel } from './served-model.js';
import type { Session, Sessions } from './sessions.js';
import type { SamplingCalls } from './sampling-worker.js';
import type { Scores } from './scored-texts.js';
import type { TrainingCalls } from './training-worker.js';
import type { WorkerCalls } from '../shared/service/worker-calls.js';

/** See `SamplingSessions.lastUses`. */
export interface LastUses {
  readonly open: ReadonlyMap<string, number>;
  readonly closed: ReadonlyMap<string, number>;
}

/** What a sampler samples from: a checkpoint, or the base model. */
export interface SamplerWeights {
  checkpoint: CheckpointMetadata | undefined; // changes for inflight samplers only
  readonly isInflight: boolean; // shared by the inflight samplers of a training run: a later save replaces them
}

/** A sampling session (a sampler): a client samples from a checkpoint or the base model. */
interface SamplingSession {
  readonly id: string;
  readonly session: Session; // of the client that opened it
  readonly weights: SamplerWeights;
  joined: number; // clients besides the one that opened it
  lastUsedAt: number; // ms since the epoch
}

/**
 * The most sampling sessions that clients with the sampling key have open together; one more closes the
 * oldest. Those of the learner, which actors use, do not count.
 */
const maxOpenedBySamplingKey = 1_000;
const maxWaiting = 1024; // requests; more are refused with 429

/** The sampling sessions of this process and their requests. */
export class SamplingSessions {
  readonly #samplers = new Map<string, SamplingSession>();
  readonly #openedBySamplingKey = new Set<string>(); // ids, the oldest first
  readonly #closed = new Map<string, number>(); // when the last sampler of a snapshot was closed, in ms, by path
  readonly #created = new ResendMemory<string>(10_000); // ids, since a closed sampler need not be kept
  readonly #queue: SamplingQueue;
  readonly #scoring: ScoringQueue;

  constructor(
    private readonly model: ServedModel,
    private readonly sessions: Sessions,
    private readonly store: CheckpointStore,
    private readonly futures: FutureStore<OperationResult>,
    /** Returns the sampling thread, started on first use. */
    worker: () => Pick<WorkerCalls<SamplingCalls>, 'call'>,
    trainer: WorkerCalls<TrainingCalls>,
  ) {
    this.#queue = new SamplingQueue(worker, Math.min(mostRows, rowsAtOnce(model.directory.config)));
    this.#scoring = new ScoringQueue(trainer);
  }

  /** Creates a session; a resent request gets the first one's. @throws {ApiError} 400, 404 */
  create(request: z.output<typeof CreateSamplingSessionRequest>, access: Access): SamplingSession {
    const session = this.sessions.get(request.session_id);
    const { sampling_session_seq_id: seqId, model_path: path, base_model: baseModel } = request;
    const create = (): string => {
      const checkpoint = path === undefined ? undefined : this.store.get(parseTinkerPath(path));
      const base = checkpoint?.base_model ?? baseModel;
      if (base === undefined) throw badRequest('model_path or base_model is required');
      assertServed(this.model, base);
      if (
        checkpoint &&
        checkpoint.base_model_digest !== this.model.directory.digestWithoutTemplate
      ) {
        throw badRequest(
          `${String(path)} was trained on different weights of ${base} than those served now`,
        );
      }
      const opened = this.open(session, { checkpoint, isInflight: false });
      if (access === 'sampling') this.#limitOpened(opened);
      return opened.id;
    };
    if (seqId === undefined) return this.get(create());
    const isOpen = (id: string) => this.#samplers.has(id);
    return this.get(this.#created.getOrCreate(`${session.id}/${seqId}`, create, isOpen));
  }

  /**
   * Opens a session without checking that the checkpoint fits: the caller has checked or just saved it.
   *
   * @throws {ApiError} 404 if the client's session has ended meanwhile.
   */
  open(session: Session, weights: SamplerWeights): SamplingSession {
    this.sessions.peek(session.id);
    const lastUsedAt = Date.now();
    const sampler: SamplingSession = { id: randomUUID(), session, weights, joined: 0, lastUsedAt };
    this.#samplers.set(sampler.id, sampler);
    session.samplers.add(sampler.id);
    return sampler;
  }

  /** @throws {ApiError} 404 */
  get(id: string): SamplingSession {
    const sampler = this.#samplers.get(id);
    if (sampler === undefined) {
      throw notFound(
        `sampling session ${JSON.stringify(id)} is unknown; sampling sessions end when the backend restarts, when their checkpoint is deleted (one without a name after an hour without use, once ${keptSnapshots} newer ones are open), and, if opened with the sampling key, when ${maxOpenedBySamplingKey} newer ones exist; create another`,
      );
    }
    return sampler;
  }

  /**
   * Returns the owner of the futures of one sampling client.
   *
   * @param clone 0: the client that opened the session; each copy of it has a number of its own.
   * @throws {ApiError} 404
   */
  clientOf(samplingSessionId: string, clone: number): string {
    return `${this.get(samplingSessionId).id}/${clone}`;
  }

  /** Closes the sessions of a deleted checkpoint. */
  closeFor(path: TinkerPath): void {
    const deleted = formatTinkerPath(path);
    for (const sampler of this.#samplers.values()) {
      if (this.tinkerPathOf(sampler) === deleted) this.#close(sampler);
    }
    this.#closed.delete(deleted);
  }

  /** Closes all that a client opened, because it has finished. */
  closeOf(session: Session): void {
    for (const id of session.samplers) this.#close(this.get(id));
  }

  #limitOpened({ id }: SamplingSession): void {
    this.#openedBySamplingKey.add(id);
    if (this.#openedBySamplingKey.size <= maxOpenedBySamplingKey) return;
    const [oldest] = this.#openedBySamplingKey;
    this.#close(this.get(oldest!));
  }

  #close(sampler: SamplingSession): void {
    const { id, session } = sampler;
    const path = this.tinkerPathOf(sampler);
    if (sampler.weights.checkpoint?.unnamed === true && path !== null) {
      this.#closed.set(path, Date.now());
    }
    this.#samplers.delete(id);
    this.#openedBySamplingKey.delete(id);
    session.samplers.delete(id);
  }

  /**
   * When each checkpoint was last sampled from, in ms since the epoch, by its path.
   *
   * @returns `open`: of those that have a sampler; `closed`: of others, when the last one was closed in this process.
   */
  lastUses(): LastUses {
    const open = new Map<string, number>();
    for (const sampler of this.#samplers.values()) {
      const path = this.tinkerPathOf(sampler);
      if (path === null) continue;
      open.set(path, Math.max(sampler.lastUsedAt, open.get(path) ?? 0));
    }
    return { open, closed: this.#closed };
  }

  tinkerPathOf({ weights: { checkpoint } }: SamplingSession): string | null {
    return checkpoint === undefined ? null : formatTinkerPath(pathOf(checkpoint));
  }

  /**
   * Queues the request and returns the id of its future. A resent request (same sequence id, same
   * content) gets the first one's future. The sequence id alone does not identify a request, since
   * several clients may share a session and use the same ids.
   *
   * @throws {ApiError} 400, 404; 429 when too many requests wait.
   */
  sample(request: z.output<typeof SampleRequest>): string {
    if (request.sampling_session_id === undefined) {
      throw badRequest('sampling_session_id is required; create a sampling session first');
    }
    const sampler = this.get(request.sampling_session_id);
    sampler.lastUsedAt = Date.now();
    const plan = planSample(request, this.model, randomInt(2 ** 32));
    // Unlike a training operation, a sample whose result has expired can be drawn again.
    const resendKey = request.seq_id === undefined ? undefined : digestOf(request);
    const sent = resendKey === undefined ? undefined : this.futures.idOf(resendKey);
    if (sent !== undefined) return sent;
    if (this.#queue.depth + this.#scoring.depth >= maxWaiting) {
      const detail = `${maxWaiting} sampling requests are waiting; try again later`;
      throw new ApiError(429, detail, { 'retry-after': '1' });
    }
    const cancelled = new AbortController();
    const sampling = this.#run(sampler.weights, plan, cancelled.signal).finally(() => {
      sampler.lastUsedAt = Date.now();
    });
    return this.futures.add(sampling, {
      owner: this.clientOf(sampler.id, cloneOf(request.seq_id)),
      cancel: () => {
        cancelled.abort();
      },
      resendKey,
    });
  }

  async #run(
    { checkpoint, isInflight }: SamplerWeights, // read now: a later save does not change this request
    { job, questions }: ReturnType<typeof planSample>,
    signal: AbortSignal,
  ): Promise<OperationResult> {
    const adapter = checkpoint && {
      folder: this.store.adapterFolder(pathOf(checkpoint)),
      sha256: checkpoint.adapter_sha256,
      rank: checkpoint.lora_rank,
      alpha: checkpoint.lora_alpha,
    };
    const { prompt } = job;
    const { temperature, wantsPrompt, firstScored, topPrompt, topSampled } = questions;
    const score = (texts: readonly Int32Array[], from: number, k: number): Promise<Scores[]> => {
      const parts = texts.map((tokens) => ({ tokens, from }));
      return this.#scoring.score({ adapter, texts: parts, k, temperature }, signal);
    };
    // Scores come first: a request for logprobs alone has a token drawn as well, and requests that were scored together draw together.
    const [ofPrompt] =
      wantsPrompt || topPrompt > 0 ? await score([prompt], firstScored, topPrompt) : [];
    const sampled =
      job.maxTokens === 0
        ? noTokens(job.count)
        : await this.#queue.sample({ adapter, job }, signal);
    const whole = () => sampled.map(({ tokens }) => concat(prompt, tokens));
    const ofSamples = topSampled === 0 ? [] : await score(whole(), prompt.length, topSampled);
    return {
      kind: 'sample',
      result: {
        sequences: sampled.map((one, i) => ({
          ...one,
          ...(ofSamples[i] && { top: ofSamples[i].top }),
        })),
        ...(ofPrompt &&
          wantsPrompt && { promptLogprobs: logprobsFrom(firstScored, ofPrompt.logprobs) }),
        ...(ofPrompt && topPrompt > 0 && { promptTop: afterUnscored(firstScored, ofPrompt.top) }),
        ...(isInflight && checkpoint && { weightsPath: formatTinkerPath(pathOf(checkpoint)) }),
      },
    };
  }
}

/** Equal for two requests of the same sequence id and content. */
function digestOf(request: z.output<typeof SampleRequest>): string {
  const text = JSON.stringify({ ...request, seq_id: String(request.seq_id) });
  return createHash('sha256').update(text).digest('base64');
}

/** The number of the client that chose a sequence id. */
function cloneOf(seqId: number | bigint | string = 0): number {
  return Number(BigInt(seqId) / BigInt(requestsOfAClient));
}

function concat(prompt: Int32Array, tokens: Int32Array): Int32Array {
  const all = new Int32Array(prompt.length + tokens.length);
  all.set(prompt);
  all.set(tokens, prompt.length);
  return all;
}

/** The logprobs of a prompt whose first `count` positions are not scored. */
function logprobsFrom(count: number, logprobs: Float32Array): Float32Array {
  const all = new Float32Array(count + logprobs.length).fill(NaN);
  all.set(logprobs, count);
  return all;
}

/** The most probable tokens of a prompt whose first `count` positions are not scored. */
function afterUnscored(count: number, { k, tokens, logprobs }: TopTokens): TopTokens {
  const skipped = count * k;
  const allLogprobs = new Float32Array(skipped + logprobs.length).fill(noLogprob);
  allLogprobs.set(logprobs, skipped);
  const allTokens = new Int32Array(skipped + tokens.length);
  allTokens.set(tokens, skipped);
  return { k, tokens: allTokens, logprobs: allLogprobs };
}

/** The samples of a prompt that takes all positions of the model. */
function noTokens(count: number): SampledSequence[] {
  return Array.from({ length: count }, () => ({
    tokens: new Int32Array(),
    logprobs: new Float32Array(),
    stopReason: 'length',
  }));
}

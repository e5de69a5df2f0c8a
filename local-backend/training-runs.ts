import { createHash, randomUUID } from 'node:crypto';
import type { z } from 'zod';
import { errorText, PermanentError } from '../shared/base/errors.js';
import type { CreateModelRequest } from '../shared/tinker/api.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import { badRequest, narrowSeed, notFound } from './http-api.js';
import type { Geometry } from './checkpoint-store.js';
import type { FutureStore } from './futures.js';
import { ResendMemory } from './resend-memory.js';
import { type OperationResult, timed } from './operation-result.js';
import type { SamplerWeights } from './sampling-sessions.js';
import { SequenceGate } from './sequence-gate.js';
import { assertServed, type ServedModel } from './served-model.js';
import type { Session, Sessions } from './sessions.js';
import type { TrainingCalls } from './training-worker.js';
import type { WorkerCalls } from '../shared/service/worker-calls.js';
import { usualAlpha } from '../shared/model/lora.js';

/** A LoRA adapter in training, and the queue of its operations. */
export interface TrainingRun {
  readonly id: string;
  /** The id that SDKs since 0.26 derive when they create a run from a state. */
  readonly derivedId: string;
  readonly session: Session;
  readonly geometry: Geometry;
  readonly userMetadata: Readonly<Record<string, string>> | undefined;
  readonly gate: SequenceGate;
  readonly requests: ResendMemory<string>;
  readonly inflight: SamplerWeights; // of its inflight samplers
  isFresh: boolean; // its weights are those that it was created with
  missingState: string | undefined; // why a state could not be loaded into fresh weights
  lastRequestAt: number; // ms since the epoch
}

/** The operation that gives a run the weights of a state. */
export const loadOperation = 'load_weights';

/** What is known of a run that was unloaded. */
interface Unloaded {
  readonly requestId: string; // of the future of unload_model
  readonly modelId: string;
  readonly why: string;
}

const maxRank = 1024;
const rememberedOperations = 1000; // per run: far more than any client pipelines

/** The training runs of this process. Weights of earlier processes exist only as checkpoints. */
export class TrainingRuns {
  readonly #runs = new Map<string, TrainingRun>();
  readonly #byDerivedId = new Map<string, TrainingRun>();
  readonly #created = new ResendMemory<{ requestId: string; modelId: string }>(10_000);
  readonly #unloaded = new ResendMemory<Unloaded>(10_000); // by both ids of a run

  constructor(
    private readonly model: ServedModel,
    private readonly sessions: Sessions,
    private readonly worker: WorkerCalls<TrainingCalls>,
    readonly futures: FutureStore<OperationResult>,
    private readonly gapWaitMs: number,
    private readonly log: Logger,
  ) {}

  /**
   * Creates a run with a new adapter; a resent request gets the first one's run.
   *
   * @param alpha by default that of the server.
   */
  create(
    request: z.output<typeof CreateModelRequest>,
    alpha?: number,
  ): { requestId: string; modelId: string } {
    const session = this.sessions.get(request.session_id);
    assertServed(this.model, request.base_model);
    const lora = request.lora_config;
    if (lora === undefined) throw badRequest('Missing LoRA config: only adapters can be trained');
    if (lora.rank > maxRank)
      throw badRequest(`lora_config.rank is ${lora.rank}; at most ${maxRank}`);
    if (!lora.train_attn && !lora.train_mlp) {
      throw badRequest('lora_config needs train_attn or train_mlp; the output head is not adapted');
    }
    return this.#created.getOrCreate(`${session.id}/${request.model_seq_id}`, () => {
      const id = randomUUID();
      const run: TrainingRun = {
        id,
        derivedId: `${session.id}:train:${request.model_seq_id}`,
        session,
        geometry: {
          base_model: this.model.name,
          base_model_digest: this.model.directory.digestWithoutTemplate,
          lora_rank: lora.rank,
          lora_alpha: alpha ?? this.model.loraAlpha ?? usualAlpha(lora.rank),
          train_attn: lora.train_attn,
          train_mlp: lora.train_mlp,
        },
        userMetadata: request.user_metadata,
        gate: this.#gate(id),
        requests: new ResendMemory(rememberedOperations),
        inflight: { checkpoint: undefined, isInflight: true },
        isFresh: true,
        missingState: undefined,
        lastRequestAt: Date.now(),
      };
      this.#runs.set(run.id, run);
      this.#byDerivedId.set(run.derivedId, run);
      session.trainingRuns.push(run.id);
      const creation = this.#create(run, narrowSeed(lora.seed ?? 0)).catch((error: unknown) => {
        this.#forget(run);
        throw error;
      });
      return { requestId: this.futures.add(creation), modelId: run.id };
    });
  }

  /** Returns a run and records activity of its session. @throws {ApiError} 404 */
  get(id: string): TrainingRun {
    const run = this.find(id);
    if (run === undefined) {
      const why = this.#unloaded.get(id)?.why ?? 'it is unknown, as after a restart of the backend';
      throw notFound(
        `model ${JSON.stringify(id)} is not in training (${why}); create a model and load its last saved state`,
      );
    }
    run.lastRequestAt = Date.now();
    this.sessions.recordActivity(run.session);
    return run;
  }

  /** Returns a client's session. @throws {ApiError} 404 */
  session(id: string): Session {
    return this.sessions.get(id);
  }

  find(id: string): TrainingRun | undefined {
    return this.#runs.get(id) ?? this.#byDerivedId.get(id);
  }

  list(): TrainingRun[] {
    return [...this.#runs.values()];
  }

  /**
   * Queues an operation by its sequence id and returns the id of its future. A resent operation (same
   * id, same content) gets the first one's future; a different operation with a used id fails.
   *
   * The operation fails if its run should have the weights of a state that could not be loaded, unless it loads one.
   *
   * @param content everything that distinguishes two operations.
   */
  submit(
    run: TrainingRun,
    seqId: number | undefined,
    operation: string,
    content: readonly (string | Uint8Array)[],
    work: () => Promise<OperationResult>,
  ): string {
    const inTurn = () => {
      const { missingState } = run;
      if (missingState === undefined || operation === loadOperation) return timed(operation, work);
      return Promise.reject(new PermanentError(missingState));
    };
    const start = () => this.futures.add(run.gate.run(seqId, inTurn));
    // Ids start at 1. Clients send 0 to query the expected id, so it is never a resent operation.
    if (seqId === undefined || seqId < 1) return start();
    const hash = createHash('sha256').update(`${seqId}/${operation}/`);
    for (const part of content) hash.update(part);
    return run.requests.getOrCreate(hash.digest('base64'), start);
  }

  /** Records that a run has the weights of a state, or that it has been trained. */
  recordWeights(run: TrainingRun): void {
    run.isFresh = false;
    run.missingState = undefined;
  }

  /** Refuses to train or save fresh weights in the place of those that a client asked for. */
  recordMissingState(run: TrainingRun, path: string, error: unknown): void {
    if (!run.isFresh) return; // its weights are as they were before
    run.missingState = `model ${run.id} was to have the weights of ${path}, which could not be loaded (${errorText(error)}); load a state that can be loaded, or create another model`;
  }

  /**
   * Frees the memory of a run; keeps its checkpoints. A run that is unloaded already stays so: its client may not have
   * received the answer.
   *
   * @throws {ApiError} 404 for a run that never was.
   */
  unload(id: string): { requestId: string; modelId: string } {
    const known = this.#unloaded.get(id);
    if (known === undefined) return this.#unload(this.get(id), 'its client unloaded it');
    const { requestId, modelId } = known;
    if (this.futures.has(requestId)) return known;
    return { requestId: this.futures.add(Promise.resolve(unloadResult(modelId))), modelId };
  }

  /** Frees the memory of a run of which its client has no use, because its state could not be loaded. */
  abandon(run: TrainingRun): void {
    this.#unload(run, run.missingState ?? 'its state could not be loaded');
  }

  /** Frees the memory of runs whose clients are gone. */
  unloadAbandoned(): void {
    for (const session of this.sessions.endInactive()) this.unloadOf(session, 'abandoned');
  }

  /** Frees the memory of the runs of a session that has ended. */
  unloadOf(session: Session, why: 'abandoned' | 'finished'): void {
    for (const id of session.trainingRuns) {
      const run = this.#runs.get(id);
      if (run === undefined) continue;
      this.log.info({ run: id, session: session.id, why }, 'run unloaded');
      this.#unload(run, `its session was ${why}`);
    }
  }

  #unload(run: TrainingRun, why: string): Unloaded {
    this.#forget(run);
    const work = async (): Promise<OperationResult> => {
      await this.worker.call('drop', { run: run.id });
      return unloadResult(run.id);
    };
    const requestId = this.futures.add(run.gate.run(undefined, work));
    const unloaded = { requestId, modelId: run.id, why };
    for (const id of [run.id, run.derivedId]) this.#unloaded.getOrCreate(id, () => unloaded);
    return unloaded;
  }

  #forget({ id, derivedId }: TrainingRun): void {
    this.#runs.delete(id);
    this.#byDerivedId.delete(derivedId);
  }

  #gate(run: string): SequenceGate {
    return new SequenceGate({
      gapWaitMs: this.gapWaitMs,
      onGap: (first, last) => {
        this.log.warn({ run, first, last }, 'missing sequence ids skipped');
      },
    });
  }

  async #create(run: TrainingRun, seed: number): Promise<OperationResult> {
    const { lora_rank: rank, lora_alpha: alpha, train_attn: attn, train_mlp: mlp } = run.geometry;
    await timed('create_model', () =>
      this.worker.call('create', { run: run.id, rank, alpha, seed, attn, mlp }),
    );
    return { kind: 'json', json: { model_id: run.id, type: 'create_model' } };
  }
}

function unloadResult(modelId: string): OperationResult {
  return { kind: 'json', json: { model_id: modelId, type: 'unload_model' } };
}

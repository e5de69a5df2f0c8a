import type { z } from 'zod';
import { type Datum, datumInputs } from '../shared/rl/datum.js';
import type {
  CreateCustomLossRequest,
  CustomLoss,
  LoadWeightsRequest,
  OptimStepRequest,
  SaveWeightsExternalRequest,
  SaveWeightsForSamplerRequest,
  SaveWeightsRequest,
} from '../shared/tinker/api.js';
import { checkName, parseTinkerPath, type TinkerPath } from '../shared/tinker/tinker-path.js';
import type { ForwardBackwardRequest } from '../shared/tinker/types.js';
import { TracedLoss } from './custom-loss/traced-loss.js';
import { badRequest, notFound } from './http-api.js';
import {
  type CheckpointMetadata,
  type CheckpointStore,
  expiryAfter,
  formatTinkerPath,
  incompatibility,
  nextAutomaticName,
  pathOf,
} from './checkpoint-store.js';
import type { OperationResult } from './operation-result.js';
import { ResendMemory } from './resend-memory.js';
import type { SamplingSessions } from './sampling-sessions.js';
import { assertFits, type ServedModel } from './served-model.js';
import type { Session } from './sessions.js';
import { loadOperation, type TrainingRun, type TrainingRuns } from './training-runs.js';
import type { TrainingCalls } from './training-worker.js';
import type { WorkerCalls } from '../shared/service/worker-calls.js';

const maxCustomLosses = 100; // of a session

/**
 * The operations of a training run. Each returns the id of its future at once. Invalid content fails
 * that future, so that the operation still consumes its sequence id.
 */
export class TrainingOperations {
  readonly #customLosses = new ResendMemory<string>(10_000);
  readonly #createdFromState = new ResendMemory<{ requestId: string; modelId: string }>(10_000);

  constructor(
    private readonly model: ServedModel,
    private readonly runs: TrainingRuns,
    private readonly worker: WorkerCalls<TrainingCalls>,
    private readonly store: CheckpointStore,
    private readonly samplers: SamplingSessions,
  ) {}

  forwardBackward(run: TrainingRun, request: ForwardBackwardRequest): string {
    const { seqId, data, loss, config, isForwardOnly, custom } = request;
    const content = [
      JSON.stringify([loss, Object.entries(config).sort(), isForwardOnly, custom?.lossId]),
      ...data.flatMap((datum) => arraysOf(datum).map(bytesOf)),
      ...(custom?.inputs ?? []).flatMap((inputs) =>
        Object.entries(inputs).flatMap(([name, { shape, data }]) => [
          `${name} ${shape.join()}`,
          bytesOf(data),
        ]),
      ),
    ];
    return this.runs.submit(run, seqId, 'forward_backward', content, async () => {
      data.forEach(({ tokens, targetTokens }, i) => {
        assertFits(this.model, tokens, `datum ${i}`);
        assertFits(this.model, targetTokens, `target_tokens of datum ${i}`);
      });
      const { logprobs, lossSum, metrics } = await this.worker.call('forwardBackward', {
        run: run.id,
        data,
        loss,
        config,
        isForwardOnly,
        ...(custom && {
          custom: { loss: customLoss(run, custom.lossId), inputs: custom.inputs },
        }),
      });
      const all = { 'loss:sum': lossSum, ...metrics };
      return { kind: 'forward_backward', loss, result: { logprobs, metrics: all } };
    });
  }

  /**
   * Keeps a custom loss for the runs of its session; a resent request gets the first one's id.
   *
   * @throws {ApiError} 400 if the session has too many.
   */
  createCustomLoss(session: Session, request: z.output<typeof CreateCustomLossRequest>): string {
    const { custom_loss_seq_id: seqId, name, inputs, graph } = request;
    return this.#customLosses.getOrCreate(`${session.id}/${seqId}`, () => {
      if (session.customLosses.size >= maxCustomLosses) {
        throw badRequest(
          `the session has ${maxCustomLosses} custom losses, the most that it may have; a loss that captures another number is another ` +
            'loss, so give what changes as an input of rank 0, or begin another session',
        );
      }
      const create = (): OperationResult => {
        const loss = { name, inputs, graph };
        new TracedLoss(loss); // throws if it uses what is not served
        const id = `${session.id}:loss:${seqId}`;
        session.customLosses.set(id, loss);
        return json({ loss_id: id, type: 'create_custom_loss' });
      };
      return this.runs.futures.add(Promise.resolve().then(create));
    });
  }

  /** Submits an operation that fails with `reason`, to consume the sequence id of an invalid request. */
  refuse(run: TrainingRun, seqId: number, reason: Error): string {
    return this.runs.submit(run, seqId, 'refused', [reason.message], () => Promise.reject(reason));
  }

  optimStep(run: TrainingRun, request: z.output<typeof OptimStepRequest>): string {
    const adam = request.adam_params;
    return this.runs.submit(run, request.seq_id, 'optim_step', [JSON.stringify(adam)], async () => {
      const { gradNorm, step } = await this.worker.call('optimStep', {
        run: run.id,
        params: {
          learningRate: adam.learning_rate,
          beta1: adam.beta1,
          beta2: adam.beta2,
          eps: adam.eps,
          weightDecay: adam.weight_decay,
          gradClipNorm: adam.grad_clip_norm,
        },
      });
      this.runs.recordWeights(run);
      const metrics = { 'grad_norm:mean': gradNorm, 'step:max': step };
      return { kind: 'json', json: { metrics, type: 'optim_step' } };
    });
  }

  saveWeights(run: TrainingRun, request: z.output<typeof SaveWeightsRequest>): string {
    return this.runs.submit(run, request.seq_id, 'save_weights', contentOf(request), async () => {
      const saved = await this.#save(run, 'weights', request);
      return json({ path: formatTinkerPath(pathOf(saved)), type: 'save_weights' });
    });
  }

  /** Saves a checkpoint to sample from; without a name it also opens a sampling session. */
  saveWeightsForSampler(
    run: TrainingRun,
    request: z.output<typeof SaveWeightsForSamplerRequest>,
  ): string {
    const { seq_id, path, kind = 'snapshot' } = request;
    const type = 'save_weights_for_sampler';
    return this.runs.submit(run, seq_id, type, contentOf(request), async () => {
      const isInflight = kind === 'inflight';
      if (isInflight && (path !== undefined || request.ttl_seconds !== undefined)) {
        throw badRequest(
          'kind is inflight: such weights have no path and no ttl_seconds; leave them out',
        );
      }
      // Without a name, they are of use only to the sampler, which a session that has ended cannot have.
      if (path === undefined) this.runs.session(run.session.id);
      const saved = await this.#save(run, 'sampler_weights', request);
      if (path !== undefined) {
        return json({ path: formatTinkerPath(pathOf(saved)), sampling_session_id: null, type });
      }
      if (isInflight) {
        const replaced = run.inflight.checkpoint;
        run.inflight.checkpoint = saved;
        if (replaced !== undefined) await this.#expire(replaced);
      }
      const weights = isInflight ? run.inflight : { checkpoint: saved, isInflight };
      const { id } = this.samplers.open(run.session, weights);
      return json({ path: null, sampling_session_id: id, type });
    });
  }

  /** Inflight weights that newer ones have replaced have no name, so none but requests in progress will ask for them. */
  async #expire(replaced: CheckpointMetadata): Promise<void> {
    const path = pathOf(replaced);
    const now = this.store.has(path) ? this.store.get(path) : undefined;
    if (now === undefined || now.public || now.expires_at !== null) return; // a client has decided otherwise
    const changes = { public: false, expires_at: expiryAfter(3_600) };
    await this.store.change(path, changes).catch(() => undefined); // deleted meanwhile
  }

  /** Saves an adapter of which a client asks a link to each file. */
  saveWeightsExternal(
    run: TrainingRun,
    request: z.output<typeof SaveWeightsExternalRequest>,
  ): string {
    const type = 'save_weights_external';
    return this.runs.submit(run, request.seq_id, type, contentOf(request), async () => {
      const saved = await this.#save(run, 'external_weights', request);
      return json({ path: formatTinkerPath(pathOf(saved)), size_bytes: saved.size_bytes, type });
    });
  }

  /**
   * Creates a run from saved weights; a resent request gets the first one's run.
   *
   * @throws {ApiError} 400, 404
   */
  createFromState(request: z.output<typeof LoadWeightsRequest>): {
    requestId: string;
    modelId: string;
  } {
    const { session_id, model_seq_id, path, user_metadata } = request;
    if (session_id === undefined || model_seq_id === undefined) {
      throw badRequest('Missing model_id, or session_id and model_seq_id to create a model');
    }
    return this.#createdFromState.getOrCreate(`${session_id}/${model_seq_id}`, () => {
      const saved = this.store.get(parseTinkerPath(path));
      const { lora_rank: rank, train_attn, train_mlp } = saved;
      const creation = {
        type: 'create_model',
        session_id,
        model_seq_id,
        base_model: request.base_model ?? saved.base_model,
        user_metadata,
        optimizer_config: request.optimizer_config,
        lora_config: { rank, seed: undefined, train_attn, train_mlp, train_unembed: false },
      } as const;
      const { modelId } = this.runs.create(creation, saved.lora_alpha);
      const run = this.runs.get(modelId);
      const loading = this.runs.submit(run, undefined, loadOperation, [], async () => {
        try {
          return await this.#load(run, request);
        } catch (error) {
          this.runs.abandon(run);
          throw error;
        }
      });
      return { requestId: loading, modelId };
    });
  }

  loadWeights(run: TrainingRun, request: z.output<typeof LoadWeightsRequest>): string {
    const content = [request.path, String(request.optimizer)];
    const load = () => this.#load(run, request);
    return this.runs.submit(run, request.seq_id, loadOperation, content, load);
  }

  async #load(
    run: TrainingRun,
    { path, optimizer: withOptimizer }: z.output<typeof LoadWeightsRequest>,
  ): Promise<OperationResult> {
    try {
      const id = parseTinkerPath(path);
      const reason = incompatibility(this.store.get(id), run.geometry);
      if (reason !== undefined) throw badRequest(`${path} cannot be loaded: ${reason}`);
      const { adapter, optimizer } = await this.store.read(id);
      await this.worker.call('restore', {
        run: run.id,
        adapter,
        ...(withOptimizer && optimizer !== undefined && { optimizer }),
      });
    } catch (error) {
      this.runs.recordMissingState(run, path, error);
      throw error;
    }
    this.runs.recordWeights(run);
    return json({ path, model_id: run.id, type: loadOperation });
  }

  async #save(
    run: TrainingRun,
    kind: TinkerPath['kind'],
    { path: givenName, user_metadata, ttl_seconds }: Partial<SaveRequest>,
  ): Promise<CheckpointMetadata> {
    const name =
      givenName === undefined
        ? nextAutomaticName(
            this.store
              .list(run.id)
              .filter((saved) => saved.kind === kind)
              .map((saved) => saved.name),
          )
        : checkName(givenName);
    const files = await this.worker.call('save', {
      run: run.id,
      baseModel: this.model.name,
      withOptimizer: kind === 'weights',
    });
    return this.store.save(
      {
        v: 1,
        training_run_id: run.id,
        kind,
        name,
        created_at: new Date().toISOString(),
        ...run.geometry,
        train_unembed: false,
        user_metadata: run.userMetadata,
        expires_at: expiryAfter(ttl_seconds),
        ...(user_metadata && { checkpoint_user_metadata: user_metadata }),
        ...(kind === 'sampler_weights' &&
          givenName === undefined &&
          ttl_seconds === undefined && { unnamed: true }),
      },
      files,
    );
  }
}

/** @throws {ApiError} 404 for a loss of another session. */
function customLoss({ session }: TrainingRun, id: string): CustomLoss {
  const loss = session.customLosses.get(id);
  if (loss !== undefined) return loss;
  throw notFound(`custom loss ${JSON.stringify(id)} is unknown in this session; create it again`);
}

type SaveRequest = Pick<
  z.output<typeof SaveWeightsRequest>,
  'path' | 'user_metadata' | 'ttl_seconds'
>;

/** Everything that distinguishes two operations. The SDK counts `sampling_session_seq_id` up for each attempt to send one. */
function contentOf(request: object): string[] {
  return [JSON.stringify({ ...request, seq_id: undefined, sampling_session_seq_id: undefined })];
}

function json(value: Readonly<Record<string, unknown>>): OperationResult {
  return { kind: 'json', json: value };
}

function arraysOf({ tokens, targetTokens, inputs }: Datum): (Int32Array | Float32Array)[] {
  const present = datumInputs.map((name) => inputs[name]).filter((array) => array !== undefined);
  return [tokens, targetTokens, ...present];
}

function bytesOf({ buffer, byteOffset, byteLength }: Int32Array | Float32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

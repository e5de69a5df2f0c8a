import { errorText, UserError } from '../base/errors.js';
import { markHandled, TaskScope, unlessAborted } from '../base/task-scope.js';
import {
  downloadAdapter,
  downloadExternal,
  locateAdapter,
  signLink,
  type DownloadedAdapter,
  type SignedLink,
} from './adapter-archive.js';
import type { Answer } from './answer.js';
import { CreateModelRequest, UntypedFuture } from './api.js';
import { CreateSamplingSessionRequest, CreateSamplingSessionResponse } from './sampling-api.js';
import {
  probeCalls,
  probePromptLogprobs,
  promptLogprobs,
  scoresAlone,
  type Known,
  type OfferedCalls,
} from './capability-probe.js';
import { listCheckpoints, type CheckpointInfo } from './checkpoint-list.js';
import { BadRequest, hasNoSuchCall, Unavailable } from './errors.js';
import { retrieve } from './future.js';
import { shakeHands, type ServedModel } from './handshake.js';
import { TinkerHttp, type HttpOptions } from './http.js';
import type { Dialect } from './operations.js';
import { createModelType } from './result-types.js';
import { Sampler } from './sampler.js';
import { Session } from './session.js';
import { checkpointUrl, parseTinkerPath } from './tinker-path.js';
import { TrainingRun } from './training-run.js';

export interface TinkerClientOptions extends HttpOptions {
  readonly signal: AbortSignal;
  /** Where the server's checkpoint directory is mounted here, if its path differs. */
  readonly checkpointDir?: string;
  /** How long to wait for a server that is just starting. */
  readonly connectPatienceMs?: number;
}

export interface LoraModelOptions {
  readonly baseModel: string; // the server's name of it
  readonly rank: number;
  readonly seed?: number; // TuFT ignores it
}

/** A connection to one Tinker server: TuFT, the hosted service, or the embedded backend. */
export class TinkerClient implements AsyncDisposable {
  readonly #scope: TaskScope;
  #keepsCheckpoints = false; // whether the server has no call that deletes one

  private constructor(
    private readonly options: TinkerClientOptions,
    private readonly http: TinkerHttp,
    private readonly dialect: Dialect,
    readonly models: readonly ServedModel[],
    private readonly session: Session,
    scope: TaskScope,
  ) {
    this.#scope = scope;
  }

  /**
   * Reads the server's configuration and its models, and opens a session.
   *
   * @throws {UserError} if no Tinker server answers, or it refuses the key.
   */
  static async connect(options: TinkerClientOptions): Promise<TinkerClient> {
    const http = new TinkerHttp(options);
    const scope = new TaskScope(options.signal);
    try {
      const patienceMs = options.connectPatienceMs ?? 10_000;
      const { config, models } = await shakeHands(http, options.apiKey, patienceMs, scope.signal);
      const chunks = {
        maxLength: config.fwdbwd_max_chunk_len,
        maxBytes: config.fwdbwd_max_chunk_bytes_count,
      };
      const session = await Session.open(http, scope.signal);
      const pollsTogether = config.sample_use_retrieve_futures;
      const dialect = {
        chunks,
        pollsTogether,
        drawsNone: models.some(({ capabilities }) => capabilities?.includes(scoresAlone) === true),
        cancelsSamples: true,
        isJsonOnly: false,
        carriers: new Map(),
      };
      return new TinkerClient(options, http, dialect, models, session, scope);
    } catch (caught) {
      await scope[Symbol.asyncDispose]();
      if (options.signal.aborted || caught instanceof UserError) throw caught;
      throw new UserError(
        `no Tinker server can be used at ${http.baseUrl}: ${errorText(caught)} Start one there, or give another backend URL.`,
        { cause: caught },
      );
    }
  }

  /**
   * Creates a LoRA adapter to train.
   *
   * @throws {UserError} if the server does not serve the base model.
   */
  async createLoraModel(options: LoraModelOptions): Promise<TrainingRun> {
    this.#checkServed(options.baseModel);
    try {
      return await this.#create(options);
    } catch (caught) {
      const { seed, ...unseeded } = options;
      const isAboutSeed = caught instanceof BadRequest && /\bseed\b/.test(caught.failure.detail);
      if (!isAboutSeed || seed === undefined) throw caught;
      const reason = caught.failure.detail;
      this.http.log.warn({ reason }, 'adapter created without its seed: another one each time');
      return this.#create(unseeded);
    }
  }

  async #create(options: LoraModelOptions): Promise<TrainingRun> {
    const { signal } = this.#scope;
    const modelId = await this.session.create(async (session_id, model_seq_id) => {
      const json = CreateModelRequest.parse({
        session_id,
        model_seq_id,
        base_model: options.baseModel,
        lora_config: {
          rank: options.rank,
          seed: options.seed,
          train_unembed: false, // no adapter of ours has an output head
        },
      });
      const operation = 'create_model';
      // TuFT creates the adapter before it answers, so a repeated request may create a second one, which wastes
      // memory but harms no run; without repeating, one lost answer would prevent a run from starting.
      const request = {
        operation,
        path: '/api/v1/create_model',
        body: { json },
        timeoutMs: 280_000,
      };
      const answer = await this.http.call(request, signal, { max500s: 1 });
      const requestId = answer.parse(UntypedFuture).request_id;
      const model = await retrieve(
        this.http,
        { operation, requestId, type: createModelType },
        signal,
      );
      return model.model_id;
    });
    this.http.log.info({ modelId, ...options }, 'model created');
    return new TrainingRun(modelId, this.http, this.dialect, signal);
  }

  /** Creates a run that continues from a saved state, including its optimizer. */
  async restoreLoraModel(
    options: LoraModelOptions & { readonly statePath: string },
  ): Promise<TrainingRun> {
    const { statePath, ...model } = options;
    parseTinkerPath(statePath);
    const run = await this.createLoraModel(model);
    try {
      await run.loadState(statePath, { optimizer: true });
    } catch (caught) {
      await this.#giveBack(run);
      throw caught;
    }
    return run;
  }

  /** Opens a session that samples with saved weights. Returns its id, which other processes may use too. */
  async createSamplingSession(modelPath: string): Promise<string> {
    parseTinkerPath(modelPath);
    return this.#openSampling({ model_path: modelPath });
  }

  /** Creates a sampler for a session, which any process may have opened. */
  sampler(samplingSessionId: string): Sampler {
    return new Sampler(samplingSessionId, this.http, this.#scope.signal, this.dialect);
  }

  /** Asks which optional calls the server has. Changes nothing there. */
  probeCalls(): Promise<OfferedCalls> {
    return probeCalls(this.http, this.#scope.signal);
  }

  /** Whether the server samples with a base model, according to its capabilities. */
  samples(baseModel: string): Known {
    const capabilities = this.#capabilitiesOf(baseModel);
    if (capabilities === undefined) return 'unknown';
    return capabilities.includes('sampling') ? 'yes' : 'no';
  }

  /** Asks whether the server gives the logprobs of a prompt, unless the capabilities answer it. */
  async probePromptLogprobs(baseModel: string): Promise<{ known: Known; reason?: string }> {
    if (this.samples(baseModel) === 'no') return { known: 'no', reason: 'it does not sample' };
    if (this.#capabilitiesOf(baseModel)?.includes(promptLogprobs) === true) return { known: 'yes' };
    const open = async () => this.sampler(await this.#openSampling({ base_model: baseModel }));
    return probePromptLogprobs(open, this.#scope.signal);
  }

  /** Downloads an adapter. @throws {AdapterOutOfReach} if its location is not reachable from here. */
  async downloadAdapter(tinkerPath: string): Promise<DownloadedAdapter> {
    const path = parseTinkerPath(tinkerPath);
    return downloadAdapter(this.http, path, this.options.checkpointDir, this.#scope.signal);
  }

  /** Whether `downloadAdapter` would work, without a download. @throws {AdapterOutOfReach} if not. */
  async locateAdapter(tinkerPath: string): Promise<void> {
    const path = parseTinkerPath(tinkerPath);
    await locateAdapter(this.http, path, this.options.checkpointDir, this.#scope.signal);
  }

  /** Downloads an adapter that was saved for it, from a server without archives, by a link that others may use too. */
  async downloadExternal(
    tinkerPath: string,
  ): Promise<DownloadedAdapter & { readonly link: SignedLink }> {
    return downloadExternal(this.http, parseTinkerPath(tinkerPath), this.#scope.signal);
  }

  /** A new link to an adapter that was saved for download. */
  async signLink(tinkerPath: string): Promise<SignedLink> {
    return signLink(this.http, parseTinkerPath(tinkerPath), this.#scope.signal);
  }

  /** Lists the checkpoints of a run, of all kinds. */
  listCheckpoints(runId: string): Promise<CheckpointInfo[]> {
    return listCheckpoints(this.http, runId, this.#scope.signal);
  }

  /** Deletes a checkpoint; a missing one is not an error. */
  async deleteCheckpoint(tinkerPath: string): Promise<void> {
    const checkpoint = parseTinkerPath(tinkerPath);
    const path = checkpointUrl(checkpoint);
    const request = { operation: 'delete checkpoint', method: 'DELETE', path } as const;
    const isDone = ({ status, failure }: Answer) => status === 404 || hasNoSuchCall(failure);
    try {
      const answer = await this.http.call(request, this.#scope.signal, { max500s: 1, isDone });
      if (!answer.isOk && hasNoSuchCall(answer.failure) && !this.#keepsCheckpoints) {
        this.#keepsCheckpoints = true;
        this.http.log.warn(
          { path: tinkerPath },
          'the server deletes no checkpoints: delete old ones there',
        );
      }
    } catch (error) {
      // TuFT answers 500 for a missing checkpoint.
      if (!(error instanceof Unavailable) || error.failure.status !== 500) throw error;
      const left = await this.listCheckpoints(checkpoint.runId);
      if (left.some((found) => found.path === tinkerPath)) throw error;
    }
  }

  /** Ends the heartbeat and every pending call. Runs and checkpoints stay on the server. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.session[Symbol.dispose]();
    this.#scope.abort(new Error('the Tinker client is closed'));
    await this.#scope[Symbol.asyncDispose]();
  }

  /**
   * Unloads an adapter that will not be trained, since servers hold few. Waits only as long as a server that works may need
   * to accept it: what made the adapter useless may be that the server is gone.
   */
  async #giveBack(run: TrainingRun): Promise<void> {
    const limit = AbortSignal.any([this.#scope.signal, AbortSignal.timeout(giveBackMs)]);
    await unlessAborted(markHandled(run.unload()), limit).catch(() => undefined);
  }

  #capabilitiesOf(baseModel: string): readonly string[] | undefined {
    return this.models.find(({ name }) => name === baseModel)?.capabilities;
  }

  #openSampling(weights: { model_path: string } | { base_model: string }): Promise<string> {
    return this.session.create(async (session_id, sampling_session_seq_id) => {
      const json = CreateSamplingSessionRequest.parse({
        session_id,
        sampling_session_seq_id,
        ...weights,
      });
      const path = '/api/v1/create_sampling_session';
      const request = {
        operation: 'create_sampling_session',
        path,
        body: { json },
        timeoutMs: 280_000,
      };
      const answer = await this.http.call(request, this.#scope.signal, { max500s: 1 });
      return answer.parse(CreateSamplingSessionResponse).sampling_session_id;
    });
  }

  #checkServed(baseModel: string): void {
    const names = this.models.map(({ name }) => name);
    if (names.length === 0 || names.includes(baseModel)) return;
    throw new UserError(
      `the server at ${this.http.baseUrl} does not serve the model ${JSON.stringify(baseModel)}: it serves ${names.join(', ')}`,
    );
  }
}

const giveBackMs = 10_000;

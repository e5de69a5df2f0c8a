import { PermanentError } from '../base/errors.js';
import { markHandled } from '../base/task-scope.js';
import { carryLoss, withoutLoss, type Carrier } from '../rl/carried-loss.js';
import { losses, type LossName } from '../rl/losses.js';
import { GetInfoRequest, ModelInfo, UnloadModelRequest, UntypedFuture } from './api.js';
import { untilListed } from './checkpoint-list.js';
import { combineResults, groupByLength, splitData } from './chunks.js';
import { BadAnswer } from './errors.js';
import type { TinkerHttp } from './http.js';
import { probeLosses, type ForwardPass } from './loss-probe.js';
import * as operations from './operations.js';
import { SubmissionQueue, type SequencedOperation } from './submission-queue.js';
import { retrieve } from './future.js';
import { unloadModelType } from './result-types.js';
import { checkName, type TinkerPath } from './tinker-path.js';
import type { AdamParams } from '../rl/adam-params.js';
import { checkData, type Datum } from '../rl/datum.js';
import type { ForwardBackwardResult } from './types.js';

type LossConfig = Readonly<Record<string, number>>;

/**
 * One LoRA adapter in training on the server. Calls run in order and need not await earlier ones; a rejection
 * may be awaited late without being reported as unhandled. After a failure, calls made before it was known
 * are refused too: see SubmissionQueue.
 */
export class TrainingRun {
  readonly #queue: SubmissionQueue;
  readonly #names = new Map<string, string>(); // kind of checkpoint, by name
  #unqueued: Promise<unknown> | undefined; // passes that later calls must follow

  constructor(
    readonly modelId: string,
    private readonly http: TinkerHttp,
    private readonly dialect: operations.Dialect,
    private readonly signal: AbortSignal,
  ) {
    const probe = (count: number) => operations.sequenceProbe(modelId, count, dialect);
    this.#queue = new SubmissionQueue(http, signal, probe);
  }

  /**
   * Asks the server for these losses. One that it lacks is from now on carried by another, in this and all other runs of
   * the client: every pass with it costs a forward pass more. See {@link probeLosses}.
   *
   * @returns the losses that are carried, and by which.
   */
  async probeLosses(
    names: readonly LossName[],
    config: LossConfig = {},
  ): Promise<Partial<Record<LossName, Carrier>>> {
    const pass: ForwardPass = (datum, loss, settings) =>
      this.#passes([datum], loss, settings, true);
    const carried = await probeLosses(pass, names, config, this.http.baseUrl);
    for (const [name, carrier] of Object.entries(carried)) {
      this.dialect.carriers.set(name as LossName, carrier);
    }
    return carried;
  }

  /**
   * Adds the gradients of the loss, a sum over all positions of all data, to those on the server.
   * Large data is sent in several requests; if one fails, the gradients of others may have been accumulated.
   *
   * @param config every threshold of the loss, since servers' defaults differ, and `temperature`.
   * @throws {PermanentError} before anything is sent, if a datum is malformed.
   */
  forwardBackward(
    data: readonly Datum[],
    loss: LossName,
    config: LossConfig,
  ): Promise<ForwardBackwardResult> {
    return this.#evaluate(data, loss, config, false);
  }

  /** Computes the same logprobs and metrics without changing gradients. */
  forward(
    data: readonly Datum[],
    loss: LossName,
    config: LossConfig,
  ): Promise<ForwardBackwardResult> {
    return this.#evaluate(data, loss, config, true);
  }

  /** Applies the gradients in one AdamW step. Returns its metrics; {} if the answer was lost. */
  optimStep(adam: AdamParams): Promise<Record<string, number>> {
    return this.#inTurn(() => this.#queue.run(operations.optimStep(this.modelId, adam)));
  }

  /**
   * Saves adapter and optimizer. Returns the tinker path.
   *
   * @throws {PermanentError} if the name could leave a directory, or holds sampler weights.
   */
  saveState(name: string): Promise<string> {
    return this.#inTurn(() => this.#save(name, operations.saveState, 'weights'));
  }

  /** Saves only the adapter, for sampling or download; otherwise like `saveState`. */
  saveWeightsForSampler(name: string): Promise<string> {
    const save = operations.saveWeightsForSampler;
    return this.#inTurn(() => this.#save(name, save, 'sampler_weights'));
  }

  /**
   * Saves only the adapter, in files to download, for servers without archives; otherwise like `saveState`.
   *
   * @throws {BadRequest} if the server does not offer it.
   */
  saveWeightsExternal(name: string): Promise<string> {
    return this.#inTurn(() => this.#save(name, operations.saveWeightsExternal));
  }

  /** Replaces the weights, and with `optimizer` its moments, which are otherwise reset. */
  loadState(path: string, { optimizer }: { optimizer: boolean }): Promise<void> {
    const load = operations.loadState(this.modelId, path, optimizer);
    return this.#inTurn(() => this.#queue.run(load).then(() => undefined));
  }

  /** Returns the server's description of the run. */
  async info(): Promise<{ baseModel?: string; loraRank?: number; tokenizerId?: string }> {
    const json = GetInfoRequest.parse({ model_id: this.modelId });
    const request = { operation: 'get_info', path: '/api/v1/get_info', body: { json } };
    const answer = await this.http.call(request, this.signal, { max500s: 1 });
    const { model_name, lora_rank, model_data } = answer.parse(ModelInfo);
    const baseModel = model_name ?? model_data.model_name;
    return {
      ...(baseModel !== undefined && { baseModel }),
      ...(lora_rank !== undefined && { loraRank: lora_rank }),
      ...(model_data.tokenizer_id !== undefined && { tokenizerId: model_data.tokenizer_id }),
    };
  }

  /** Gives the adapter back, and with it what TuFT knows of its checkpoints. Nothing may follow. */
  async unload(): Promise<void> {
    const operation = 'unload_model';
    const json = UnloadModelRequest.parse({ model_id: this.modelId, type: operation });
    const request = { operation, path: '/api/v1/unload_model', body: { json } };
    const answer = await this.http.call(request, this.signal, { max500s: 1 });
    const requestId = answer.parse(UntypedFuture).request_id;
    await retrieve(this.http, { operation, requestId, type: unloadModelType }, this.signal);
  }

  /** Calls in order: behind a pass that is not in the queue yet. */
  #inTurn<T>(call: () => Promise<T>): Promise<T> {
    return markHandled(this.#unqueued === undefined ? call() : this.#unqueued.then(call));
  }

  #evaluate(
    data: readonly Datum[],
    loss: LossName,
    config: LossConfig,
    isForwardOnly: boolean,
  ): Promise<ForwardBackwardResult> {
    const carrier = this.dialect.carriers.get(loss);
    return carrier === undefined
      ? this.#inTurn(() => this.#passes(data, loss, config, isForwardOnly))
      : markHandled(this.#carried({ data, loss, config, carrier, isForwardOnly }));
  }

  /** A forward pass and, unless that is all, the carrier's own with the derivative that follows from it. */
  #carried(what: {
    readonly data: readonly Datum[];
    readonly loss: LossName;
    readonly config: LossConfig;
    readonly carrier: Carrier;
    readonly isForwardOnly: boolean;
  }): Promise<ForwardBackwardResult> {
    const { data, loss, config, carrier, isForwardOnly } = what;
    const { temperature = 1 } = config;
    const first = this.#inTurn(() =>
      this.#passes(withoutLoss(data, carrier), carrier, { temperature }, true),
    );
    const queued = first.then(({ logprobs, metrics }) => {
      const { data: ready, lossSum } = carryLoss(loss, config, data, logprobs, carrier);
      const second = isForwardOnly
        ? Promise.resolve({ logprobs, metrics })
        : markHandled(this.#passes(ready, carrier, { temperature }, false));
      return { second, lossSum };
    });
    if (!isForwardOnly) this.#holdBehind(queued);
    return queued.then(async ({ second, lossSum }) => {
      const { logprobs, metrics } = await second;
      return { logprobs, metrics: { ...metrics, 'loss:sum': lossSum } };
    });
  }

  #holdBehind(queued: Promise<unknown>): void {
    const release = () => {
      if (this.#unqueued === queued) this.#unqueued = undefined;
    };
    this.#unqueued = queued;
    queued.then(release, release);
  }

  async #passes(
    data: readonly Datum[],
    loss: LossName,
    config: LossConfig,
    isForwardOnly: boolean,
  ): Promise<ForwardBackwardResult> {
    checkData(data);
    // Every server's default; SkyRL refuses the setting itself.
    const { temperature, ...rest } = config;
    const sent = temperature === 1 ? rest : config;
    // TuFT pads a batch, and a loss that no input scales counts the padding: with 8 sequences of 8 to 40 tokens,
    // ten steps of dro deviated by 27 degrees from the correct direction (0.2.2, micro batch 16).
    // The server refuses a loss that this client does not know.
    const known = (losses as Partial<typeof losses>)[loss];
    const isByLength = known !== undefined && known.scaledBy === undefined;
    const groups = isByLength ? groupByLength(data) : [[...data.keys()]];
    const chunks = groups.flatMap((group) => {
      const part = group.map((i) => data[i]!);
      return splitData(part, this.dialect.chunks);
    });
    const results = chunks.map((chunk) => {
      const what = { modelId: this.modelId, data: chunk, loss, config: sent, isForwardOnly };
      return this.#queue.run(operations.pass(what, this.dialect));
    });
    const { logprobs, metrics } = combineResults(await Promise.all(results));
    const order = groups.flat();
    this.#checkLengths(order, data, logprobs);
    const inOrder = new Array<Float32Array>(data.length);
    order.forEach((i, place) => (inOrder[i] = logprobs[place]!));
    return { logprobs: inOrder, metrics };
  }

  /** Checks that logprobs match their tokens: misaligned ones would silently be trained on. */
  #checkLengths(
    order: readonly number[],
    data: readonly Datum[],
    logprobs: readonly Float32Array[],
  ): void {
    const expected = order.map((i) => data[i]!.tokens.length);
    const found = logprobs.map(({ length }) => length);
    if (String(found) === String(expected)) return;
    const place = expected.findIndex((length, index) => length !== found[index]);
    const detail = `logprobs of ${found.length} datums for ${expected.length}; datum ${order[place] ?? '?'} has ${found[place] ?? 0} for ${expected[place] ?? 0} tokens`;
    throw new BadAnswer({ operation: 'forward_backward', url: this.http.baseUrl, detail });
  }

  async #save(
    name: string,
    save: (
      modelId: string,
      name: string,
      whenMade?: () => Promise<string>,
    ) => SequencedOperation<string>,
    kind?: TinkerPath['kind'],
  ): Promise<string> {
    const whenMade = () =>
      untilListed(this.http, `tinker://${this.modelId}/${kind}/${name}`, this.signal);
    // A name that was used before may exist without the save in question.
    const isSure = kind !== undefined && !this.#names.has(name);
    const operation = save(this.modelId, checkName(name), isSure ? whenMade : undefined);
    const holds = this.#names.get(name) ?? operation.name;
    if (holds !== operation.name) {
      // TuFT stores both kinds in one directory, where one overwrites the other.
      throw new PermanentError(
        `the checkpoint name ${name} is already used by a ${holds}; choose another`,
      );
    }
    this.#names.set(name, operation.name);
    return this.#queue.run(operation);
  }
}

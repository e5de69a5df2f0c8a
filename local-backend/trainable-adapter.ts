import { errorText, PermanentError } from '../shared/base/errors.js';
import {
  adamWStep,
  decodeMoments,
  encodeMoments,
  freshMoments,
  globalNorm,
  type Gradients,
  type Moments,
} from '../shared/model/adamw.js';
import { leastTemperature } from './served-model.js';
import { type Adapter, decodeAdapter, encodeAdapter } from '../shared/model/lora.js';
import type { Trainer } from '../shared/model/trainer.js';
import type { AdamParams } from '../shared/rl/adam-params.js';
import { checkInputs, type Datum } from '../shared/rl/datum.js';
import { gspo, gspoDefaults, type ServedLoss } from '../shared/rl/gspo.js';
import {
  type LossAndGradient,
  lossAndGradient,
  losses,
  lossSettings,
  ratioBounds,
} from '../shared/rl/losses.js';
import type { CustomInputs } from '../shared/tinker/types.js';
import type { CheckpointFiles } from './checkpoint-store.js';
import type { CustomLossValue, TracedLoss } from './custom-loss/traced-loss.js';

/** The result of forward_backward. */
export interface PassResult {
  readonly logprobs: Float32Array[]; // [N] for each datum, before any update
  readonly lossSum: number;
  readonly metrics?: Readonly<Record<string, number>>; // of a custom loss
}

/** What computes logprobs and gradients: one session, or several. */
export type GradientSource = Pick<Trainer, 'forwardBackward' | 'forward'>;

/** A custom loss and what it reads of each datum. */
interface CustomWork {
  readonly loss: TracedLoss;
  readonly inputs: readonly CustomInputs[];
}

/** The training state of one run: its adapter, the gradients accumulated since its last step, and AdamW's moments. */
export class TrainableAdapter {
  #adapter: Adapter;
  #moments: Moments;
  #gradients: Gradients | undefined;

  constructor(adapter: Adapter) {
    this.#adapter = adapter;
    this.#moments = freshMoments(adapter.tensors);
  }

  /**
   * Adds the loss's gradient to the accumulated ones. It adds nothing if it fails or if a logprob is not
   * finite: then the weights are broken, which the client sees from the returned logprobs.
   *
   * @throws {PermanentError} when a datum or a setting does not fit the loss, or the loss of finite logprobs or its
   *   gradient is not finite.
   */
  async forwardBackward(
    trainer: GradientSource,
    data: readonly Datum[],
    loss: ServedLoss,
    config: Readonly<Record<string, number>>,
    custom?: CustomWork,
  ): Promise<PassResult> {
    checkLossConfig(loss, config);
    const added: Gradients = new Map();
    const result =
      loss === 'gspo' || loss === 'custom'
        ? await this.#inTwoPasses(trainer, data, loss, config, added, custom)
        : await trainer.forwardBackward(this.#adapter, data, loss, config, added);
    if (!result.logprobs.every(areFinite)) return result;
    assertFiniteLoss(result);
    if (!Number.isFinite(globalNorm(added))) {
      throw infiniteGradient(loss, result.lossSum);
    }
    if (this.#gradients === undefined) this.#gradients = added;
    else {
      for (const [key, sum] of this.#gradients) {
        const part = added.get(key)!;
        for (let i = 0; i < sum.length; i++) sum[i]! += part[i]!;
      }
    }
    return result;
  }

  /** Returns the same numbers without computing a gradient. */
  async forward(
    trainer: GradientSource,
    data: readonly Datum[],
    loss: ServedLoss,
    config: Readonly<Record<string, number>>,
    custom?: CustomWork,
  ): Promise<PassResult> {
    checkLossConfig(loss, config);
    return (await this.#evaluate(trainer, data, loss, config, custom)).evaluation;
  }

  /** Evaluates the loss, and its derivative by each logprob, in one pass without the gradient of the weights. */
  async #evaluate(
    trainer: GradientSource,
    data: readonly Datum[],
    loss: ServedLoss,
    config: Readonly<Record<string, number>>,
    custom: CustomWork | undefined,
  ): Promise<{ evaluation: PassResult; derivatives: readonly Float64Array[] }> {
    checkInputs(data, loss);
    const logprobs = await trainer.forward(this.#adapter, data, config['temperature'] ?? 1);
    const all = data.map(({ inputs }, d): Partial<CustomLossValue> & LossAndGradient =>
      within(loss, d, () =>
        custom === undefined
          ? lossOf(loss, logprobs[d]!, inputs, config)
          : custom.loss.evaluate(logprobs[d]!, custom.inputs[d]!),
      ),
    );
    const lossSum = all.reduce((sum, one) => sum + one.loss, 0);
    const metrics = reduceMetrics(all.map((one) => one.metrics ?? {}));
    const evaluation = { logprobs, lossSum, ...(custom && { metrics }) };
    if (logprobs.every(areFinite)) assertFiniteLoss(evaluation);
    return { evaluation, derivatives: all.map(({ gradient }) => gradient) };
  }

  /**
   * The gradient of a loss that needs all logprobs of a sequence before it has a derivative: the first pass gives
   * the derivatives, and in the second they weight the logprobs.
   */
  async #inTwoPasses(
    trainer: GradientSource,
    data: readonly Datum[],
    loss: ServedLoss,
    config: Readonly<Record<string, number>>,
    added: Gradients,
    custom: CustomWork | undefined,
  ): Promise<PassResult> {
    const { evaluation, derivatives } = await this.#evaluate(trainer, data, loss, config, custom);
    if (!evaluation.logprobs.every(areFinite)) return evaluation;
    const weighted = data.map((datum, d) => {
      const weights = Float32Array.from(derivatives[d]!, (derivative) => -derivative);
      if (!areFinite(weights)) throw infiniteGradient(loss, evaluation.lossSum);
      return { ...datum, inputs: { weights } };
    });
    const { temperature = 1 } = config;
    await trainer.forwardBackward(this.#adapter, weighted, 'cross_entropy', { temperature }, added);
    return evaluation;
  }

  /**
   * Applies and clears the accumulated gradients. Without any it changes nothing, like PyTorch's AdamW.
   *
   * @throws {PermanentError} when a setting is out of its range, which leaves everything as it is; or when the
   *   sum of the gradients overflows, which clears them.
   */
  optimStep(params: AdamParams): { gradNorm: number; step: number } {
    checkAdamParams(params);
    const gradients = this.#gradients;
    if (gradients === undefined) return { gradNorm: 0, step: this.#moments.step };
    this.#gradients = undefined;
    if (!Number.isFinite(globalNorm(gradients))) {
      throw new PermanentError(
        'the sum of the accumulated gradients is not finite; they are cleared',
      );
    }
    const { gradNorm } = adamWStep(this.#adapter.tensors, gradients, this.#moments, params);
    return { gradNorm, step: this.#moments.step };
  }

  /** Returns a copy as files, without the accumulated gradients. */
  encode(baseModel: string, withOptimizer: boolean): CheckpointFiles {
    const { safetensors, config } = encodeAdapter(this.#adapter, baseModel);
    return {
      adapter: safetensors,
      adapterConfig: config,
      ...(withOptimizer && { optimizer: encodeMoments(this.#adapter.tensors, this.#moments) }),
    };
  }

  /**
   * Restores the state from files and drops accumulated gradients. Without an optimizer file AdamW
   * restarts. If it fails, it changes nothing.
   *
   * @throws {PermanentError} when a file is corrupt or the adapter has different matrices.
   */
  restore({ adapter: file, optimizer }: Pick<CheckpointFiles, 'adapter' | 'optimizer'>): void {
    const adapter = decodeAdapter(file, this.#adapter);
    for (const [key, { dims }] of this.#adapter.tensors) {
      const found = adapter.tensors.get(key)?.dims;
      if (found?.join() !== dims.join() || adapter.tensors.size !== this.#adapter.tensors.size) {
        throw new PermanentError(
          `the checkpoint's adapter does not fit: ${key} is [${dims.join()}] here and [${found?.join() ?? 'absent'}] in the checkpoint`,
        );
      }
    }
    // Keep this adapter's order, regardless of the file's, so that steps and norms sum in a fixed order.
    const tensors = new Map(
      [...this.#adapter.tensors.keys()].map((key) => [key, adapter.tensors.get(key)!]),
    );
    this.#moments =
      optimizer === undefined ? freshMoments(tensors) : decodeMoments(optimizer, tensors);
    this.#adapter = { ...adapter, tensors };
    this.#gradients = undefined;
  }
}

/** A loss of one datum, and its derivatives. @throws {RangeError} if the datum does not fit the loss. */
function lossOf(
  loss: ServedLoss,
  logprobs: Float32Array,
  inputs: Datum['inputs'],
  config: Readonly<Record<string, number>>,
): LossAndGradient {
  if (loss === 'custom') throw new RangeError('the loss is custom, but the request has no loss_id');
  if (loss === 'gspo') return gspo(logprobs, inputs as Required<Datum['inputs']>, config);
  return lossAndGradient(loss, logprobs, inputs, lossSettings(loss, config, 'server'));
}

/** @throws {PermanentError} naming the datum for which `evaluate` throws. */
function within<T>(loss: ServedLoss, index: number, evaluate: () => T): T {
  try {
    return evaluate();
  } catch (error) {
    throw new PermanentError(`${loss}: data[${index}]: ${errorText(error)}`, { cause: error });
  }
}

/** Adds up the metrics of all data, or averages them, as the end of each name says. */
function reduceMetrics(all: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const reduced: Record<string, number> = {};
  for (const metrics of all) {
    for (const [name, value] of Object.entries(metrics)) {
      reduced[name] = (reduced[name] ?? 0) + (name.endsWith(':mean') ? value / all.length : value);
    }
  }
  return reduced;
}

function infiniteGradient(loss: ServedLoss, lossSum: number): PermanentError {
  return new PermanentError(
    `the gradient of ${loss} is not finite although its loss is ${lossSum}: a ratio overflows; ` +
      'check the logprobs, or use a loss that bounds the ratio, such as cispo',
  );
}

function settingsOf(loss: ServedLoss): string[] {
  if (loss === 'custom') return [];
  return Object.keys(loss === 'gspo' ? gspoDefaults : losses[loss].settings);
}

/** @throws {PermanentError} naming a setting that the loss does not have, or whose value cannot work. */
function checkLossConfig(loss: ServedLoss, config: Readonly<Record<string, number>>): void {
  const known = [...settingsOf(loss), 'temperature'];
  for (const [key, value] of Object.entries(config)) {
    if (!known.includes(key)) {
      throw new PermanentError(
        `loss_fn_config has ${JSON.stringify(key)}, which ${loss} does not know; it knows ${known.join(', ')}`,
      );
    }
    if (!Number.isFinite(value)) {
      throw new PermanentError(`loss_fn_config: ${key} is ${value}, expected a finite number`);
    }
  }
  const { temperature = 1 } = config;
  if (temperature < leastTemperature) {
    throw new PermanentError(
      `loss_fn_config: temperature is ${temperature}, expected at least ${leastTemperature}`,
    );
  }
  if (loss === 'custom') return;
  const { low, high } =
    loss === 'gspo'
      ? ratioBounds('ppo', { ...gspoDefaults, ...config })
      : ratioBounds(loss, lossSettings(loss, config, 'server'));
  if (low > high) {
    throw new PermanentError(
      `loss_fn_config: the lowest ratio, ${low}, is above the highest, ${high}; swap them`,
    );
  }
}

/** @throws {PermanentError} naming a setting with which AdamW divides by 0 or moves away from the minimum. */
function checkAdamParams({ learningRate, beta1, beta2, eps, ...others }: AdamParams): void {
  const refuse = (name: string, value: number, expected: string): void => {
    throw new PermanentError(`adam_params: ${name} is ${value}, expected ${expected}`);
  };
  if (!(learningRate >= 0)) refuse('learning_rate', learningRate, 'at least 0');
  if (!(beta1 >= 0 && beta1 < 1)) refuse('beta1', beta1, 'at least 0 and less than 1');
  if (!(beta2 >= 0 && beta2 < 1)) refuse('beta2', beta2, 'at least 0 and less than 1');
  if (!(eps > 0)) refuse('eps', eps, 'more than 0');
  if (!(others.weightDecay >= 0)) refuse('weight_decay', others.weightDecay, 'at least 0');
  if (!(others.gradClipNorm >= 0)) refuse('grad_clip_norm', others.gradClipNorm, 'at least 0');
}

function areFinite(values: Float32Array): boolean {
  return values.every(Number.isFinite);
}

/** The weights are not to blame: the logprobs are finite. */
function assertFiniteLoss({ lossSum }: PassResult): void {
  if (Number.isFinite(lossSum)) return;
  throw new PermanentError(
    `the loss is ${lossSum}, not finite: logprobs that are far from those of the model, or too large advantages or weights`,
  );
}

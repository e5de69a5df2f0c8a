import { UserError } from '../base/errors.js';
import { carriers, type Carrier } from '../rl/carried-loss.js';
import type { Datum } from '../rl/datum.js';
import { lossAndGradient, losses, lossSettings, type LossName } from '../rl/losses.js';
import { BadRequest } from './errors.js';
import type { ForwardBackwardResult } from './types.js';

type LossConfig = Readonly<Record<string, number>>;

/** A forward pass of one datum; rejects with BadRequest if the server refuses it. */
export type ForwardPass = (
  datum: Datum,
  loss: LossName,
  config: LossConfig,
) => Promise<Pick<ForwardBackwardResult, 'logprobs' | 'metrics'>>;

/**
 * Asks a server for losses, by forward passes of four tokens. It has a loss only if it computes what we mean by the name:
 * the value that it reports must be ours. open-rl for example takes other names for the bounds of `ppo`, and ignores ours;
 * SkyRL's forward pass ignores the loss and reports no value. The two losses that can carry others have no settings, so
 * they need only be accepted.
 *
 * @param config the settings of the losses where they are not the learner's defaults, and `temperature`.
 * @returns the losses that the server lacks, and by which other each can be computed exactly.
 * @throws {UserError} if a loss can be had in no way, or if the server computes logprobs at another temperature.
 */
export async function probeLosses(
  pass: ForwardPass,
  names: readonly LossName[],
  config: LossConfig,
  url: string,
): Promise<Partial<Record<LossName, Carrier>>> {
  const probe = new LossProbe(pass, config, url);
  await probe.checkTemperature();
  const carried: Partial<Record<LossName, Carrier>> = {};
  for (const name of names) {
    const reason = await probe.lacks(name);
    if (reason === undefined) continue;
    const carrier = await probe.firstCarrier();
    if (carrier === undefined) {
      throw new UserError(
        `the server at ${url} computes neither the loss ${name} nor ${carriers.join(' or ')}, with which it could be ` +
          `had: ${reason}. Use another server, or one of its losses (--loss).`,
      );
    }
    carried[name] = carrier;
  }
  return carried;
}

class LossProbe {
  readonly #answers = new Map<LossName, Promise<string | undefined>>();
  #logprobs: Float32Array | undefined; // of the four tokens, at the run's temperature
  readonly #temperature: number;

  constructor(
    private readonly pass: ForwardPass,
    private readonly config: LossConfig,
    private readonly url: string,
  ) {
    this.#temperature = config['temperature'] ?? 1;
  }

  /** Refuses a server that would compute ratios between two different distributions. */
  async checkTemperature(): Promise<void> {
    const temperature = this.#temperature;
    if (temperature === 1) return;
    const carrier = await this.firstCarrier();
    if (carrier === undefined) {
      for (const one of carriers) {
        if ((await this.#try(one, { temperature: 1 })).refusal === undefined) {
          throw this.#onlyAtOne(`it refuses another: ${(await this.lacks(one)) ?? ''}`);
        }
      }
      return;
    }
    const { logprobs: hot } = await this.#try(carrier, { temperature: 4 * temperature });
    const isSame = this.#logprobs!.every((logprob, i) => {
      return Math.abs(logprob - (hot?.[i] ?? NaN)) <= 0.01 * Math.abs(logprob);
    });
    if (isSame) throw this.#onlyAtOne('it ignores another');
  }

  async firstCarrier(): Promise<Carrier | undefined> {
    for (const carrier of carriers) {
      if ((await this.lacks(carrier)) === undefined) return carrier;
    }
    return undefined;
  }

  /** @returns why the server does not have the loss, or undefined if it has. */
  lacks(loss: LossName): Promise<string | undefined> {
    const known = this.#answers.get(loss) ?? this.#ask(loss);
    this.#answers.set(loss, known);
    return known;
  }

  async #ask(loss: LossName): Promise<string | undefined> {
    const temperature = this.#temperature;
    if ((carriers as readonly LossName[]).includes(loss)) {
      const { refusal, logprobs } = await this.#try(loss, { temperature });
      this.#logprobs ??= logprobs;
      return refusal;
    }
    await this.firstCarrier(); // for the logprobs
    const settings = lossSettings(loss, this.config, 'learner');
    const { refusal, lossSum, inputs } = await this.#try(loss, { ...settings, temperature });
    if (refusal !== undefined || this.#logprobs === undefined) return refusal;
    if (lossSum === undefined) return `it does not report the value of the loss ${loss}`;
    const { loss: ours } = lossAndGradient(loss, this.#logprobs, inputs, settings);
    if (Math.abs(lossSum - ours) <= 0.01 * (1 + Math.abs(ours))) return undefined;
    return `its loss ${loss} is ${lossSum} where ours is ${ours}`;
  }

  async #try(loss: LossName, config: LossConfig) {
    const { inputs, datum } = questionOf(loss, this.#logprobs);
    try {
      const { logprobs, metrics } = await this.pass(datum, loss, config);
      return { inputs, logprobs: logprobs[0], lossSum: metrics['loss:sum'], refusal: undefined };
    } catch (caught) {
      if (!(caught instanceof BadRequest)) throw caught;
      return { inputs, refusal: caught.failure.detail };
    }
  }

  #onlyAtOne(how: string): UserError {
    return new UserError(
      `the server at ${this.url} computes logprobs at temperature 1 only (${how}), and the run samples at ` +
        `${this.#temperature}. Set --temperature 1, or use another server.`,
    );
  }
}

/**
 * Four tokens with ratios of 7.4 and 0.14, beyond the usual bounds on both sides, and advantages of both signs. Without
 * the current logprobs there is no loss: weights and advantages are 0.
 */
function questionOf(loss: LossName, current: Float32Array | undefined) {
  const apart = [-2, 2, -2, 2];
  const known = {
    weights: Float32Array.of(0, 0, 0, 0),
    logprobs: Float32Array.from(apart, (gap, i) => Math.min((current?.[i] ?? 0) + gap, 0)),
    advantages:
      current === undefined ? Float32Array.of(0, 0, 0, 0) : Float32Array.of(1, 1, -0.5, -0.5),
  };
  const inputs = Object.fromEntries(losses[loss].inputs.map((name) => [name, known[name]]));
  const tokens = Int32Array.of(0, 0, 0, 0);
  return { inputs, datum: { tokens, targetTokens: tokens, inputs } };
}

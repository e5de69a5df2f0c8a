import type { AdamParams } from '../../shared/rl/adam-params.js';
import { adamWStep, type Gradients, type Moments } from '../../shared/model/adamw.js';
import { paddedFloats, paddedIntegers } from '../../shared/model/packing.js';
import { differentiate } from '../../shared/model/graph/differentiate.js';
import { Graph } from '../../shared/model/graph/graph.js';
import { floatOutput, floats, Session, type Feeds } from '../../shared/model/graph/session.js';
import { loss } from '../../shared/model/loss-graph.js';
import type { ModelConfig } from '../../shared/model/model-config.js';
import type { Tensor } from '../../shared/model/safetensors.js';
import { sequenceLogprobs } from '../../shared/model/sequence-graph.js';
import { trainable } from '../../shared/model/weight-source.js';

/** One text to imitate: the loss counts the tokens where `weights` is not 0. */
export interface Example {
  readonly tokens: Int32Array; // [N], the input
  readonly targets: Int32Array; // [N], the next tokens
  readonly weights: Float32Array; // [N]
}

/** Trains every weight of a model to imitate examples, with the graph that trains LoRA. */
export class LanguageModel {
  readonly weights: ReadonlyMap<string, Tensor>;
  readonly #session: Session;
  readonly #moments: Moments;

  private constructor(weights: ReadonlyMap<string, Tensor>, moments: Moments, session: Session) {
    this.weights = weights;
    this.#moments = moments;
    this.#session = session;
  }

  static async create(
    config: ModelConfig,
    weights: ReadonlyMap<string, Tensor>,
    moments: Moments,
    threads: number,
  ): Promise<LanguageModel> {
    const graph = new Graph();
    const { logprobs } = sequenceLogprobs(graph, config, trainable(weights), []);
    const total = loss(graph, 'cross_entropy', logprobs);
    const inputs = graph.inputs.filter(({ name }) => weights.has(name));
    const gradients = differentiate(graph, total, inputs);
    graph.output('loss', total);
    inputs.forEach(({ name }, i) => {
      graph.output(`d ${name}`, gradients[i]!);
    });
    return new LanguageModel(weights, moments, await Session.create(graph, threads));
  }

  /**
   * One optimizer step on the mean loss per counted token, in place.
   *
   * @returns the loss in nats per token, before the step.
   */
  async step(examples: readonly Example[], adam: AdamParams): Promise<number> {
    const time = Math.max(...examples.map(({ tokens }) => tokens.length));
    const counted = examples.reduce(
      (sum, { weights }) => sum + weights.reduce((total, weight) => total + weight, 0),
      0,
    );
    const scaled = examples.map(({ weights }) => weights.map((weight) => weight / counted));
    const feeds: Feeds = {
      tokens: paddedIntegers(
        examples.map(({ tokens }) => tokens),
        time,
      ),
      targets: paddedIntegers(
        examples.map(({ targets }) => targets),
        time,
      ),
      weights: paddedFloats(scaled, time),
      mask: floats(new Float32Array(examples.length * time).fill(1), [examples.length, time]),
      temperature: floats(Float32Array.of(1), []),
    };
    for (const [name, { dims, data }] of this.weights) feeds[name] = floats(data, dims);
    const outputs = await this.#session.run(feeds);

    const gradients: Gradients = new Map();
    for (const name of this.weights.keys()) gradients.set(name, floatOutput(outputs, `d ${name}`));
    adamWStep(this.weights, gradients, this.#moments, adam);
    return floatOutput(outputs, 'loss')[0]!;
  }
}

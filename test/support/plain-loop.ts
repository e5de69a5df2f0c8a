import { groupRequest } from '../../actor/group-messages.js';
import { TicketSource } from '../../learner/tickets/ticket-source.js';
import { Decoder } from '../../shared/model/decoder.js';
import type { SampledRollout } from '../../shared/model/rollout-draft.js';
import { decodeAdapter } from '../../shared/model/lora.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import { loadTokenizer } from '../../shared/model/tokenizer.js';
import { openTask } from '../../shared/tasks/registry.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { Datum } from '../../shared/rl/datum.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { newTicketKey, TicketIds } from '../../shared/wire/ticket-ids.js';

export interface PlainLoopOptions {
  readonly config: RunConfig;
  readonly steps: number;
  readonly model: ModelDirectory;
  readonly client: TinkerClient;
  readonly isCorrect: (rollout: SampledRollout) => boolean;
}

/**
 * Synchronous training as a plain loop, with the tickets, seeds and settings of a run but
 * without its actors, streams, ticket states and windows: sample until the batch is full, train, save,
 * repeat. Mean-centred advantages, cispo, no normalization.
 *
 * @returns the minibatches sent to the backend, in order.
 */
export async function plainLoop(options: PlainLoopOptions): Promise<Datum[][]> {
  const { config, steps, model, client, isCorrect } = options;
  const task = openTask(config.task);
  const dataset = await task.load();
  const tokenizer = await loadTokenizer(model);
  const prompts = { dataset, task, tokenizer, maxContext: undefined };
  const trainIds = dataset.train.map(({ id }) => id);
  const ids = new TicketIds(newTicketKey());
  const tickets = new TicketSource(config, trainIds, { margin: 0, state: undefined, ids });
  const decoder = Decoder.of(model, { threads: 1 });
  const run = await client.createLoraModel({ ...config.lora, baseModel: config.model.name });

  const sent: Datum[][] = [];
  let order = 0;
  for (let version = 0; version < steps; version++) {
    const path = await run.saveWeightsForSampler(`plain-${version}`);
    const { adapter: file, ...scale } = await client.downloadAdapter(path);
    const policy = { version, adapter: decodeAdapter(file, scale) };

    const batch: Datum[][] = [];
    while (batch.length < config.groupsPerBatch) {
      const ticket = { ...tickets.at(order++, 0), issuedAtVersion: version };
      const request = groupRequest(ticket, prompts);
      const rollouts = await decoder.sampleGroup(request, () => policy);
      const rewards = rollouts.map((rollout) => Number(isCorrect(rollout)));
      const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
      if (rewards.every((reward) => reward === mean)) continue;
      batch.push(rollouts.map((rollout, i) => datum(request.prompt, rollout, rewards[i]! - mean)));
    }

    const { numSubsteps, numMinibatches, loss, sampling, adam } = config;
    const size = config.groupsPerBatch / (numSubsteps * numMinibatches);
    for (let substep = 0; substep < numSubsteps; substep++) {
      for (let i = 0; i < numMinibatches; i++) {
        const data = batch.splice(0, size).flat();
        const { temperature } = sampling;
        await run.forwardBackward(data, loss.name, { ...loss.config, temperature });
        sent.push(data);
      }
      await run.optimStep(adam);
    }
  }
  return sent;
}

/** Position i scores token i + 1; the prompt's tokens are not trained on. */
function datum(prompt: Int32Array, rollout: SampledRollout, advantage: number): Datum {
  const text = [...prompt, ...rollout.tokens];
  const unscored = new Array<number>(prompt.length - 1).fill(0);
  return {
    tokens: Int32Array.from(text.slice(0, -1)),
    targetTokens: Int32Array.from(text.slice(1)),
    inputs: {
      logprobs: Float32Array.from([...unscored, ...rollout.behaviorLogprobs]),
      advantages: new Float32Array(text.length - 1).fill(advantage, prompt.length - 1),
    },
  };
}

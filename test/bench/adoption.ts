import { createRandom } from '../../shared/base/random.js';
import { mean } from '../../shared/base/statistics.js';
import type { OnAdoption } from '../../shared/model/rollout-draft.js';
import { offPolicyStats, unbounded } from '../../shared/rl/off-policy.js';
import { promptTokens } from '../../shared/tasks/prompt.js';
import { halfTInterval } from '../../tools/sweep/bootstrap.js';
import { embeddedSetting, trainVersions, type TrainedVersion } from './canary-policies.js';
import type { Figure } from './main.js';

const groupsOfStep = 64; // of the figures in the docs; how far a step goes depends on the noise of its gradient
const groups = 48; // that begin with each of the first versions
const groupSize = 4; // small, since answers to one problem resemble one another
const firstVersions = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const adoptionCounts = [1, 2, 4];
const steps = Math.max(...firstVersions) + Math.max(...adoptionCounts);
const usualTokens = 10; // about the length of an answer, over which the adoptions are spread

/** Tokens of answers that begin with one version, with their logprobs as they were sampled and as another policy gives them. */
interface Pairs {
  readonly behavior: number[];
  readonly current: number[];
}

/**
 * Measures, with consecutive versions of a policy that the embedded model is trained to synchronously, how far the
 * distribution of a token that follows an adoption in flight is from the one that its version gives after it has read
 * the whole text: the KL divergence (r - 1 - ln r) and the total variation, estimated from the sampled tokens, with
 * `keep` and `reprefill`.
 */
export async function benchAdoption(): Promise<Figure[]> {
  const setting = await embeddedSetting();
  const versions = await trainVersions(setting, { steps, groups: groupsOfStep, seed: 0 });
  const figures = [...figuresOf('a version under the next one', await underNext())];
  const kinds = [
    ...adoptionCounts.map((count) => ['keep', count] as const),
    ['reprefill', adoptionCounts.at(-1)!] as const,
  ];
  for (const [onAdoption, count] of kinds) {
    const found = await afterAdoptions(onAdoption, count);
    const times = count === 1 ? 'one adoption' : `${count} adoptions`;
    figures.push(...figuresOf(`${onAdoption}, after ${times}`, found));
  }
  return figures;

  /** Tokens of a version under the next one: what a step changes, for comparison. */
  async function underNext(): Promise<Pairs[]> {
    const found: Pairs[] = [];
    for (const first of firstVersions) {
      const sampled = versions[first]!.sampled.slice(0, groups);
      found.push(await pairsOf(sampled, () => versions[first + 1]!, first));
    }
    return found;
  }

  /** The tokens after the first adoption of answers that adopt so many versions, each under its own version. */
  async function afterAdoptions(onAdoption: OnAdoption, count: number): Promise<Pairs[]> {
    const { task, dataset, tokenizer, decoder } = setting;
    const { temperature, maxTokens } = setting.settings;
    const random = createRandom('adoption');
    const adoptions = (tokens: number) =>
      Math.min(count, Math.floor((tokens * (count + 1)) / usualTokens));
    const found: Pairs[] = [];
    for (const first of firstVersions) {
      const requests = Array.from({ length: groups }, (_, i) => ({
        prompt: promptTokens(
          task.prompt(dataset.train[random.int(dataset.train.length)]!),
          tokenizer,
        ),
        ...{ count: groupSize, temperature, maxTokens, stopTokenIds: tokenizer.eosTokenIds },
        seed: first * 1_000 + i,
      }));
      let tokens = 0;
      const policy = () => {
        const version = first + adoptions(tokens++);
        return { version, adapter: versions[version]!.adapter };
      };
      const all = await decoder.sampleGroups(requests, policy, { onAdoption });
      const sampled = requests.map(({ prompt }, g) => ({ prompt, rollouts: all[g]! }));
      found.push(await pairsOf(sampled, (version) => versions[version]!, first + 1));
    }
    return found;
  }

  /** @param least the version of the first tokens that count. */
  async function pairsOf(
    groups: TrainedVersion['sampled'],
    policyOf: (version: number) => TrainedVersion,
    least: number,
  ): Promise<Pairs> {
    const answers = groups.flatMap(({ prompt, rollouts }) =>
      rollouts.map((rollout) => ({ ...rollout, prompt })),
    );
    const data = answers.map(({ prompt, tokens }) => {
      const text = Int32Array.of(...prompt, ...tokens);
      return { tokens: text.slice(0, -1), targetTokens: text.slice(1), inputs: {} };
    });
    const pairs: Pairs = { behavior: [], current: [] };
    const all = new Set(answers.flatMap((answer) => answer.versions.map(([version]) => version)));
    for (const sampledBy of [...all].filter((version) => version >= least)) {
      const { adapter } = policyOf(sampledBy);
      const logprobs = await setting.trainer.forward(adapter, data, setting.settings.temperature);
      for (const [i, { prompt, behaviorLogprobs, versions: runs }] of answers.entries()) {
        let t = 0;
        for (const [version, length] of runs) {
          for (const end = t + length; t < end; t++) {
            if (version !== sampledBy) continue;
            pairs.behavior.push(behaviorLogprobs[t]!);
            pairs.current.push(logprobs[i]![prompt.length - 1 + t]!);
          }
        }
      }
    }
    return pairs;
  }
}

/** The means of the versions, with the 95 % interval of Student's t over them: some steps change much, most little. */
function figuresOf(what: string, byVersion: readonly Pairs[]): Figure[] {
  const stats = byVersion.map((pairs) => offPolicyStats([pairs], unbounded)!);
  const kl = stats.map(({ klK3 }) => klK3);
  // The mean of max(0, 1 - r) over sampled tokens: half of the summed differences of the probabilities.
  const totalVariation = byVersion.map(({ behavior, current }) =>
    mean(behavior.map((logprob, t) => Math.max(0, -Math.expm1(current[t]! - logprob)))),
  );
  const tokens = byVersion.reduce((sum, { behavior }) => sum + behavior.length, 0);
  return [
    { what: `${what}: KL a token`, value: mean(kl), unit: 'nats' },
    { what: '… half of its 95 % interval', value: halfTInterval(kl)!, unit: 'nats' },
    { what: '… as kl_sample_train_v2', value: mean(stats.map(({ klV2 }) => klV2)), unit: 'nats' },
    { what: '… total variation', value: 100 * mean(totalVariation), unit: '%' },
    { what: '… half of its 95 % interval', value: 100 * halfTInterval(totalVariation)!, unit: '%' },
    { what: '… tokens', value: tokens, unit: `after ${byVersion.length} versions` },
  ];
}

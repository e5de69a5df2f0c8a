import { z } from 'zod';
import { number } from '../../shared/service/config-fields.js';

const gpus = number.min(0).default(0);
const price = number.min(0).optional();
const hour = (whose: string, flag: string) =>
  price.describe(
    `price of an hour of one GPU of ${whose}, or of its machine if ${flag} is 0; any currency, the same for every price.`,
  );
const million = (what: string) => price.describe(`price of a million ${what}.`);

/** What the run's machines and tokens cost; it decides nothing but the figures. */
export const Prices = z.object({
  gpusTrainer: gpus.describe('GPUs that the backend holds; 0: it runs on a CPU.'),
  gpusSampler: gpus.describe(
    'GPUs that each actor holds, a fraction if several share one; 0: actors run on CPUs, or sample on the GPUs of the backend.',
  ),
  gpusReward: gpus.describe('GPUs that the reward services hold, all together.'),
  priceTrainerHour: hour('the backend', '--gpus-trainer'),
  priceSamplerHour: hour('an actor', '--gpus-sampler'),
  priceRewardHour: hour('the reward services', '--gpus-reward'),
  pricePrefillTokens: million(
    'prompt tokens to sample from; the answers to a ticket share a prompt',
  ),
  priceSampledTokens: million('sampled tokens'),
  priceTrainedTokens: million('tokens to train on, prompts included'),
});
export type Prices = z.infer<typeof Prices>;

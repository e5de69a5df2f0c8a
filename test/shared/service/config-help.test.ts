import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { describeFlags } from '../../../shared/service/config-help.js';

describe('the help of a service', () => {
  const help = describeFlags(
    {
      backendUrl: z.url().optional().describe('where it trains.'),
      maxSteps: z.coerce.number().int().default(7).describe('when it ends.'),
      loss: z.enum(['ppo', 'dro']).describe('what it minimizes.').default('dro'),
      json: z.boolean().default(false),
      run: z.string(),
      share: z.coerce.number().min(0).lt(1).optional().describe('how much.'),
      bound: z.union([z.literal('auto'), z.int().positive()]).default('auto'),
    },
    'reward-service',
  );

  it('the help of a service gives the values, explanation, range, default and environment variable of each flag', () => {
    assert.equal(
      help,
      [
        '  --backend-url URL',
        '      where it trains. (env REWARD_SERVICE_BACKEND_URL)',
        '  --max-steps N',
        '      when it ends. (whole; default 7; env REWARD_SERVICE_MAX_STEPS)',
        '  --loss ppo|dro',
        '      what it minimizes. (default "dro"; env REWARD_SERVICE_LOSS)',
        '  --json',
        '      (default false; env REWARD_SERVICE_JSON)',
        '  --run TEXT',
        '      (needed; env REWARD_SERVICE_RUN)',
        '  --share N',
        '      how much. (number, ≥ 0, < 1; env REWARD_SERVICE_SHARE)',
        '  --bound TEXT',
        '      (auto, or whole, > 0; default "auto"; env REWARD_SERVICE_BOUND)',
        '  --config FILE',
        '      a JSON file of settings; --backend-url is the key "backendUrl" there. (env',
        '      REWARD_SERVICE_CONFIG)',
      ].join('\n'),
    );
  });
});

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
    },
    'reward-service',
  );

  it('the help of a service gives the values, explanation, default and environment variable of each flag', () => {
    assert.equal(
      help,
      [
        '  --backend-url URL',
        '      where it trains. (env REWARD_SERVICE_BACKEND_URL)',
        '  --max-steps N',
        '      when it ends. (default 7; env REWARD_SERVICE_MAX_STEPS)',
        '  --loss ppo|dro',
        '      what it minimizes. (default "dro"; env REWARD_SERVICE_LOSS)',
        '  --json',
        '      (default false; env REWARD_SERVICE_JSON)',
      ].join('\n'),
    );
  });
});

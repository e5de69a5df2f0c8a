import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ActorConfig } from '../../../actor/config.js';
import { LearnerConfig } from '../../../learner/config.js';
import { LocalBackendConfig } from '../../../local-backend/config.js';
import { RewardServiceConfig } from '../../../reward-service/config.js';
import { refuseEnvironment } from '../../../tools/sweep/refuse-environment.js';

const others = {
  actor: ActorConfig,
  'reward-service': RewardServiceConfig,
  'local-backend': LocalBackendConfig,
};
const schemas = { learner: LearnerConfig, others };

describe('the environment of an experiment', () => {
  const refuse = (env: Record<string, string>) => {
    refuseEnvironment(schemas, env, 'e.json');
  };

  it('a variable that is a setting of the runs is refused with its name, its value and the remedy', () => {
    assert.throws(
      () => {
        refuse({
          ...{ LEARNER_LORA_RANK: '4', OFFBEAT_ACTORS: '3', OFFBEAT_GROUP_SIZE: '7' },
          ...{ ACTOR_THREADS: '2', OFFBEAT_EVAL_TEMPERATURE: '2', LEARNER_CONFIG: 'c.json' },
        });
      },
      {
        name: 'UserError',
        message: [
          'offbeat sweep takes the settings of its runs from e.json alone, and not from the environment:',
          '  - OFFBEAT_ACTORS is "3": put "actors" into "settings" of e.json, and unset it',
          '  - OFFBEAT_GROUP_SIZE is "7": put "groupSize" into "settings" of e.json, and unset it',
          '  - LEARNER_LORA_RANK is "4": put "loraRank" into "settings" of e.json, and unset it',
          '  - LEARNER_CONFIG is "c.json": put its content into "settings" of e.json, and unset it',
          '  - ACTOR_THREADS is "2": unset it; an experiment cannot set it',
          '  - OFFBEAT_EVAL_TEMPERATURE is "2": put "temperature" into the "settings" of its "furtherEvaluations" of e.json, and unset it',
        ].join('\n'),
      },
    );
  });

  it('other variables, empty ones, keys and the settings of the sweep itself are no settings of the runs', () => {
    refuse({
      ...{ PATH: '/bin', OFFBEAT_NATS_SERVER: '/n', LOG_LEVEL: 'warn', LEARNER_LORA_RANK: '' },
      ...{ OFFBEAT_SWEEP_OUT: 'o', ACTOR_ENGINE_API_KEY: 'k', TINKER_API_KEY: 'tml-x' },
      ...{ OFFBEAT_RUNS_DIR: 'r', ACTOR_LIKE: '1' },
    });
  });
});

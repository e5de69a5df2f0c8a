import { z } from 'zod';
import { checkTask, TaskSettings } from '../../shared/tasks/registry.js';
import { checkScoreSettings, RewardServiceConfig, scoreSettings } from '../config.js';

const { healthHost, healthPort } = RewardServiceConfig.shape;

/** What is scored, as the learner would be told, and where. */
export const ScoreServerConfig = z
  .object({
    ...TaskSettings.shape,
    ...scoreSettings,
    httpPort: scoreSettings.httpPort
      .unwrap()
      .default(10_620)
      .describe('and its port; 0: any, see the log.'),
    healthHost,
    healthPort,
  })
  .check(checkScoreSettings)
  .check(({ value, issues }) => {
    checkTask(value, (key, message) =>
      issues.push({ code: 'custom', input: value, path: [key], message }),
    );
  });
export type ScoreServerConfig = z.infer<typeof ScoreServerConfig>;

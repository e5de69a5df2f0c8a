import { z } from 'zod';
import { checkTask, TaskSettings } from '../../shared/tasks/registry.js';
import { RewardServiceConfig } from '../config.js';

const { healthHost, healthPort, httpHost, httpPort } = RewardServiceConfig.shape;

/** What is scored, as the learner would be told, and where. */
export const ScoreServerConfig = z
  .object({
    ...TaskSettings.shape,
    httpHost,
    httpPort: httpPort.unwrap().default(10_620).describe('and its port; 0: any, see the log.'),
    healthHost,
    healthPort,
  })
  .check(({ value, issues }) => {
    checkTask(value, (key, message) =>
      issues.push({ code: 'custom', input: value, path: [key], message }),
    );
  });
export type ScoreServerConfig = z.infer<typeof ScoreServerConfig>;

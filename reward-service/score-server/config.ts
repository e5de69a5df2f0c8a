import { z } from 'zod';
import { checkTask, TaskSettings } from '../../shared/tasks/registry.js';
import { checkScoreSettings, RewardServiceConfig, scoreSettings } from '../config.js';

const { healthHost, healthPort } = RewardServiceConfig.shape;

/** The task, with the same settings as the learner's, and the address of the server. */
export const ScoreServerConfig = z
  .object({
    ...TaskSettings.shape,
    task: TaskSettings.shape.task.describe('task to score.'),
    ...scoreSettings,
    httpPort: scoreSettings.httpPort
      .unwrap()
      .default(10_620)
      .describe('port of POST /score; 0 picks a free one (logged).'),
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

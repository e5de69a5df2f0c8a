import { z } from 'zod';
import { int } from '../../shared/service/config-fields.js';
import { TaskSettings } from '../../shared/tasks/registry.js';

/** What the model is to learn: problems, how they are put and what an answer earns. */
export const Task = z.object({
  seed: int.min(0).default(0).describe('of the order of problems, sampling and adapter.'),
  ...TaskSettings.shape,
});
export type Task = z.infer<typeof Task>;

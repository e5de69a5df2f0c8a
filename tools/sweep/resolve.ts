import type { z } from 'zod';
import { asFlags, loadUpConfig } from '../../cli/up/up-config.js';
import type { Resolved } from './plan.js';
import type { Settings } from './sweep-file.js';

/**
 * What the settings of a run come to, as `offbeat up` would take them.
 *
 * @throws {UserError} listing what it would refuse.
 */
export function resolveSettings(learner: z.ZodObject, settings: Settings): Resolved {
  const given = loadUpConfig(learner, asFlags(settings), {}).settings;
  const all = learner.parse({ ...given, run: 'any' });
  return {
    groupsPerBatch: Number(all['groupsPerBatch']),
    groupSize: Number(all['groupSize']),
  };
}

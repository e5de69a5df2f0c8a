import { UserError } from '../../shared/base/errors.js';
import { type Environment, environmentName, shown } from '../../shared/service/config.js';
import { EvalConfig, evalService } from '../../cli/eval/eval-config.js';
import { runSettings, UpConfig, upService } from '../../cli/up/up-config.js';
import type { ServiceSchemas } from './applied-settings.js';

/**
 * Refuses environment variables that are settings of the runs or of their evaluations: every run would have them, and
 * neither the file of the experiment nor its report would say so. Keys may be there, since a file would expose them.
 *
 * @throws {UserError} naming each variable, its value and the remedy.
 */
export function refuseEnvironment(
  { learner, others }: Pick<ServiceSchemas, 'learner' | 'others'>,
  env: Environment,
  file: string,
): void {
  const ofUp = { ...UpConfig.shape, ...runSettings(learner) };
  const inFile = (key: string, place: string) =>
    `put ${key === 'config' ? 'its content' : JSON.stringify(key)} into ${place} of ${file}, and unset it`;
  const known = new Map<string, string>(); // the remedy for each variable
  const add = (service: string, shape: object, remedy: (key: string) => string) => {
    for (const key of [...Object.keys(shape), 'config']) {
      if (isSetByUs.has(key) || /key$/i.test(key)) continue;
      const variable = environmentName(service, key);
      if (!known.has(variable)) known.set(variable, remedy(key));
    }
  };
  add(upService, ofUp, (key) => inFile(key, '"settings"'));
  add('learner', learner.shape, (key) =>
    key in ofUp || key === 'config' ? inFile(key, '"settings"') : 'unset it',
  );
  for (const [service, { shape }] of Object.entries(others)) {
    add(service, shape, (key) =>
      key in UpConfig.shape ? inFile(key, '"settings"') : 'unset it; an experiment cannot set it',
    );
  }
  add(evalService, EvalConfig.shape, (key) =>
    inFile(key, 'the "settings" of its "furtherEvaluations"'),
  );
  const found = [...known].filter(([variable]) => (env[variable] ?? '') !== '');
  if (found.length === 0) return;
  const lines = found.map(([variable, remedy]) => {
    return `\n  - ${variable} is ${shown(variable, env[variable])}: ${remedy}`;
  });
  throw new UserError(
    `offbeat sweep takes the settings of its runs from ${file} alone, and not from the environment:${lines.join('')}`,
  );
}

/** Given by the sweep itself, as flags, which count before the environment. */
const isSetByUs = new Set(['run', 'runsDir', 'json']);

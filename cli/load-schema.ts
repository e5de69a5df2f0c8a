import { pathToFileURL } from 'node:url';
import { z } from 'zod';
import { packageRoot } from '../shared/base/package-root.js';

/** Each service's compiled folder under dist/. */
const serviceFolders = {
  actor: 'actor',
  learner: 'learner',
  'reward-service': 'reward-service',
  'score-server': 'reward-service/score-server',
  'local-backend': 'local-backend',
} as const;
export type ServiceName = keyof typeof serviceFolders;

export const serviceNames = Object.keys(serviceFolders) as ServiceName[];

/** A file of a service, to be imported when it is asked for: the launcher depends on none of them. */
export function serviceFile(service: ServiceName, file: string): string {
  return pathToFileURL(`${packageRoot}dist/${serviceFolders[service]}/${file}`).href;
}

/** The configuration schema of a service: `LearnerConfig` of learner/config.ts. */
export async function loadSchema(service: ServiceName): Promise<z.ZodObject> {
  const module = (await import(serviceFile(service, 'config.js'))) as Record<string, unknown>;
  const name = `${service.replace(/(^|-)([a-z])/g, (_, _dash, letter: string) => letter.toUpperCase())}Config`;
  const schema = module[name];
  if (!(schema instanceof z.ZodObject)) throw new Error(`${service}/config.js exports no ${name}`);
  return schema;
}

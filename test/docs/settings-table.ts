import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { runSettings } from '../../cli/up/up-config.js';
import { LearnerConfig } from '../../learner/config.js';
import { kebab } from '../../shared/service/config.js';
import { alignedTable, withSection } from './markdown-table.js';
import { commandSettings, learnerSettings } from './settings.js';

export const configurationPage = fileURLToPath(
  new URL('../../../docs/configuration.md', import.meta.url),
);

/** The page with the current settings of the schemas. */
export function updatedConfiguration(page: string): string {
  const withLearner = withSection(page, 'every setting of a run', learnerTables());
  return withSection(withLearner, 'every setting of a command', commandTables());
}

/** Defaults that depend on the machine or process, by command and setting. */
const ownDefaults: Readonly<Record<string, string>> = {
  'learner name': 'host and process id',
  'actor name': 'host and process id',
  'reward-service name': 'host and process id',
  'learner modelDir': '`shared/model/base`',
  'actor modelDir': '`shared/model/base`',
  'reward-service modelDir': '`shared/model/base`',
  'local-backend modelDir': '`shared/model/base`',
  'local-backend threads': 'as the CPU has',
};

/** One row per setting: flag, values, default, meaning. */
function settingsTable(command: string, shape: z.core.$ZodShape): string {
  const rows = Object.entries(shape).map(([key, field]) => {
    const schema = z.toJSONSchema(field, { io: 'output', unrepresentable: 'any' }) as JsonSchema;
    const fallback = ownDefaults[`${command} ${key}`] ?? defaultOf(field, schema);
    return [`\`--${kebab(key)}\``, valuesOf(schema), fallback, escaped(schema.description)];
  });
  return alignedTable([['flag', 'value', 'default', 'meaning'], ...rows]);
}

interface JsonSchema {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly string[];
  readonly const?: string;
  readonly anyOf?: readonly JsonSchema[];
  readonly pattern?: string;
  readonly format?: string;
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
  readonly exclusiveMaximum?: number;
}

function learnerTables(): string {
  const chosen = runSettings(LearnerConfig);
  return learnerSettings
    .map(({ title, shape }) => {
      const fixed = Object.keys(shape).filter((key) => !(key in chosen));
      const flags = fixed.map((key) => `\`--${kebab(key)}\``).join(', ');
      const note = fixed.length > 0 ? `\`npm start\` has its own ${flags}.\n\n` : '';
      return `### ${title}\n\n${note}${settingsTable('learner', shape)}`;
    })
    .join('\n\n');
}

function commandTables(): string {
  return Object.entries(commandSettings)
    .filter(([command]) => command !== 'learner')
    .map(([command, { service, shape }]) => {
      const title = command === 'up' ? 'npm start, offbeat up' : `offbeat ${command}`;
      const prefix = `\`${service.toUpperCase().replaceAll('-', '_')}_…\``;
      return `### ${title}\n\nIn the environment ${prefix}.\n\n${settingsTable(command, shape)}`;
    })
    .join('\n\n');
}

function valuesOf(schema: JsonSchema): string {
  if (schema.enum !== undefined) return schema.enum.map((value) => `\`${value}\``).join(', ');
  if (schema.const !== undefined) return `\`${schema.const}\``;
  if (schema.anyOf !== undefined) return schema.anyOf.map(valuesOf).join(', or ');
  if (schema.pattern?.startsWith('^auto:') === true) return '`auto:N`';
  if (schema.type === 'boolean') return '';
  if (schema.type === 'integer') return `whole${boundsOf(schema)}`;
  if (schema.type === 'number') return `number${boundsOf(schema)}`;
  return schema.format === 'uri' ? 'URL' : 'text';
}

/** Omits the limits of the number type itself. */
function boundsOf(schema: JsonSchema): string {
  const { minimum, exclusiveMinimum, maximum, exclusiveMaximum } = schema;
  const isReal = (bound: number | undefined) =>
    bound !== undefined && Math.abs(bound) < Number.MAX_SAFE_INTEGER;
  const bounds = [
    isReal(minimum) && `≥ ${minimum}`,
    isReal(exclusiveMinimum) && `> ${exclusiveMinimum}`,
    isReal(maximum) && `≤ ${maximum}`,
    isReal(exclusiveMaximum) && `< ${exclusiveMaximum}`,
  ];
  return bounds
    .filter((bound) => bound !== false)
    .map((bound) => `, ${bound}`)
    .join('');
}

function defaultOf(field: z.core.$ZodType, schema: JsonSchema): string {
  if (schema.default === undefined) {
    return z.safeParse(field, undefined).success ? '' : '**needed**';
  }
  if (schema.type === 'boolean') return schema.default === true ? 'on' : 'off';
  return `\`${typeof schema.default === 'string' ? schema.default : JSON.stringify(schema.default)}\``;
}

function escaped(text = ''): string {
  return text.replaceAll('|', '\\|').replace(/[<>]/g, (mark) => `\\${mark}`);
}

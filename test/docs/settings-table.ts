import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { isNeeded, valuesText } from '../../shared/service/config-help.js';
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
    const schema = z.toJSONSchema(field, { io: 'output', unrepresentable: 'any' });
    const fallback = ownDefaults[`${command} ${key}`] ?? defaultOf(field, schema);
    const values = valuesText(field, (value) => `\`${value}\``);
    return [`\`--${kebab(key)}\``, values, fallback, escaped(schema.description)];
  });
  return alignedTable([['flag', 'value', 'default', 'meaning'], ...rows]);
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

function defaultOf(field: z.core.$ZodType, schema: z.core.JSONSchema.BaseSchema): string {
  if (schema.default === undefined) return isNeeded(field) ? '**needed**' : '';
  if (schema.type === 'boolean') return schema.default === true ? 'on' : 'off';
  return `\`${typeof schema.default === 'string' ? schema.default : JSON.stringify(schema.default)}\``;
}

function escaped(text = ''): string {
  return text.replaceAll('|', '\\|').replace(/[<>]/g, (mark) => `\\${mark}`);
}

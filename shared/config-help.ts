import { z } from 'zod';
import { environmentName, kebab } from './config.js';

/**
 * A service's flags, explained from its schema: one entry a flag with its values, what its
 * `.describe()` says, its default, and the environment variable that sets it too.
 *
 * @param service as `loadConfig` takes it, so that the environment names agree.
 */
export function describeFlags(shape: z.core.$ZodShape, service: string): string {
  return Object.entries(shape)
    .map(([key, field]) => describeFlag(key, field as z.ZodType, service))
    .join('\n');
}

function describeFlag(key: string, field: z.ZodType, service: string): string {
  const { type, fallback, description } = unwrap(field);
  const remarks = [
    fallback === undefined ? undefined : `default ${JSON.stringify(fallback)}`,
    `env ${environmentName(service, key)}`,
  ];
  const flag = `--${kebab(key)}${valueName(type)}`;
  const text = description === undefined ? '' : `${description} `;
  return `  ${flag}\n      ${text}(${remarks.filter((remark) => remark !== undefined).join('; ')})`;
}

/** The type under `.default()` and `.optional()`, with what these wrappers say of it. */
function unwrap(field: z.ZodType): { type: z.ZodType; fallback: unknown; description?: string } {
  let type = field;
  let fallback: unknown;
  let description = field.description;
  for (;;) {
    if (type instanceof z.ZodDefault) fallback = type.def.defaultValue;
    else if (!(type instanceof z.ZodOptional)) break;
    type = type.unwrap() as z.ZodType;
    description ??= type.description;
  }
  return { type, fallback, ...(description !== undefined && { description }) };
}

function valueName(type: z.ZodType): string {
  if (type instanceof z.ZodBoolean) return '';
  if (type instanceof z.ZodEnum) return ` ${type.options.join('|')}`;
  if (type instanceof z.ZodNumber) return ' N';
  if (type instanceof z.ZodURL) return ' URL';
  return ' TEXT';
}

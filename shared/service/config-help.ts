import { z } from 'zod';
import { environmentName, kebab } from './config.js';

/**
 * Describes a service's flags from its schema: for each flag its values, its `.describe()` text, its default
 * and its environment variable.
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
  const entry = `${text}(${remarks.filter((remark) => remark !== undefined).join('; ')})`;
  return `  ${flag}\n${wrapped(entry, '      ')}`;
}

const helpColumns = 100;

/** Wraps a text to the terminal width with an indent; a word that is too long gets its own line. */
function wrapped(text: string, indent: string): string {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const longer = lines.length === 0 ? undefined : `${lines.at(-1)!} ${word}`;
    if (longer !== undefined && longer.length <= helpColumns) lines[lines.length - 1] = longer;
    else lines.push(`${indent}${word}`);
  }
  return lines.join('\n');
}

/** Unwraps `.default()` and `.optional()`. @returns the inner type with its default and description. */
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

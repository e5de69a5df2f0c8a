import { z } from 'zod';
import { environmentName, kebab } from './config.js';

/**
 * Describes a service's flags from its schema: for each flag its values, its `.describe()` text, its range, its
 * default and its environment variable.
 *
 * @param service as `loadConfig` takes it, so that the environment names agree.
 * @param isAll false if the flags of another shape follow, and `--config` after them.
 */
export function describeFlags(
  shape: z.core.$ZodShape,
  service: string,
  { isAll = true }: { readonly isAll?: boolean } = {},
): string {
  const flags = Object.entries(shape).map(([key, field]) =>
    describeFlag(key, field as z.ZodType, service),
  );
  return (isAll ? [...flags, configFlag(Object.keys(shape), service)] : flags).join('\n');
}

function configFlag(keys: readonly string[], service: string): string {
  const key = keys.find((name) => /[A-Z]/.test(name)) ?? keys[0]!;
  const text = `a JSON file of settings; --${kebab(key)} is the key "${key}" there.`;
  return `  --config FILE\n${wrapped(`${text} (env ${environmentName(service, 'config')})`, '      ')}`;
}

function describeFlag(key: string, field: z.ZodType, service: string): string {
  const { type, fallback, description } = unwrap(field);
  const remarks = [
    isShownByName(type) ? undefined : valuesText(field),
    isNeeded(field) ? 'needed' : undefined,
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

/** Whether a setting must be given. */
export function isNeeded(field: z.core.$ZodType): boolean {
  return !z.safeParse(field, undefined).success;
}

function isShownByName(type: z.ZodType): boolean {
  return (
    type instanceof z.ZodBoolean ||
    type instanceof z.ZodEnum ||
    type instanceof z.ZodString ||
    type instanceof z.ZodURL
  );
}

/**
 * The values of a setting in words: `whole, ≥ 0`.
 *
 * @param literal formats a value that is given literally.
 */
export function valuesText(field: z.core.$ZodType, literal = (value: string) => value): string {
  return valuesOf(
    z.toJSONSchema(field, { io: 'output', unrepresentable: 'any' }) as JsonSchema,
    literal,
  );
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

function valuesOf(schema: JsonSchema, literal: (value: string) => string): string {
  if (schema.enum !== undefined) return schema.enum.map(literal).join(', ');
  if (schema.const !== undefined) return literal(schema.const);
  if (schema.anyOf !== undefined)
    return schema.anyOf.map((each) => valuesOf(each, literal)).join(', or ');
  if (schema.pattern?.startsWith('^auto:') === true) return literal('auto:N');
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

function valueName(type: z.ZodType): string {
  if (type instanceof z.ZodBoolean) return '';
  if (type instanceof z.ZodEnum) return ` ${type.options.join('|')}`;
  if (type instanceof z.ZodNumber) return ' N';
  if (type instanceof z.ZodURL) return ' URL';
  return ' TEXT';
}

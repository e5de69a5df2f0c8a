import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { errorText, UserError } from '../base/errors.js';
import { nearest } from '../base/nearest.js';
import { isList } from './config-fields.js';
import { withoutMark } from '../base/read-json.js';
import type { KnownFlag } from './npm-flags.js';
import { isMissing, plainWords } from '../base/plain-words.js';
import { keepSecret } from './telemetry/secrets.js';

/** Environment variables of a process. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Fills a service's schema: a flag over the environment over the configuration file over the
 * default. A key `maxSteps` of service `learner` is `--max-steps`, `LEARNER_MAX_STEPS`, and
 * `maxSteps` in the file that `--config` or `LEARNER_CONFIG` names.
 *
 * Booleans are flags without a value (`--json`), also `--no-json`; in the environment `true` or
 * `false`. Everything else arrives as text, so number fields use `z.coerce.number()`. The flag of a
 * list may be repeated; any other flag may not be given with two different values.
 *
 * @param nameOf how the user can set a key that no file sets.
 * @throws {ConfigError} listing all problems, under the names that the user knows.
 */
export function loadConfig<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
  service: string,
  argv: readonly string[],
  env: Environment,
  nameOf = (key: string) => settingName(service, key),
  elsewhere: Elsewhere = () => undefined,
): z.infer<z.ZodObject<Shape>> {
  const problems: string[] = [];
  const keys = Object.keys(schema.shape);
  const flags = parseFlags(argv, schema.shape, problems, elsewhere);
  const path = flags.get('config') ?? env[environmentName(service, 'config')];
  if (flags.get('config') === '') problems.push('--config needs a value');
  const file = typeof path === 'string' && path !== '' ? readFile(path, keys, problems) : {};

  const values: Record<string, unknown> = {};
  const fromFile = new Set<string>();
  for (const key of keys) {
    const fromEnv = env[environmentName(service, key)];
    const beforeFile = flags.get(key) ?? (fromEnv === '' ? undefined : fromEnv);
    const given = beforeFile ?? file[key];
    if (beforeFile === undefined && given !== undefined) fromFile.add(key);
    if (isSecret(key) && typeof given === 'string') keepSecret(given);
    if (given !== undefined) values[key] = isBoolean(schema.shape[key]) ? asBoolean(given) : given;
  }

  // NaN makes the schema complain where its coercion would read another number than was meant.
  const entries = Object.entries(values).map(([key, given]) => {
    return [key, takesNumbers(schema.shape[key]) && !isNumeric(given) ? NaN : given] as const;
  });
  const parsed = schema.safeParse(Object.fromEntries(entries), { error: plainWords });
  if (!parsed.success) {
    for (const issue of parsed.error.issues) {
      const key = String(issue.path[0] ?? '');
      const name = fromFile.has(key) ? `${JSON.stringify(key)} in ${String(path)}` : nameOf(key);
      const given = values[key];
      if (given === undefined && issue.code === 'invalid_type') {
        const more = issue.message === isMissing ? '' : `: ${issue.message}`;
        problems.push(`${name} is missing${more}`);
        continue;
      }
      // Without a value, the issue is a rule about several settings, and this one has its default.
      const found = given === undefined ? name : `${name} is ${shown(key, given)}`;
      const isEmpty = given === null || (typeof given === 'string' && given.trim() === '');
      problems.push(
        `${found}: ${issue.message}${isEmpty ? '; give a value, or leave it out' : ''}`,
      );
    }
  }
  if (problems.length > 0 || !parsed.success) throw new ConfigError(service, problems);
  return parsed.data;
}

/** Settings of a service or a command are wrong. */
export class ConfigError extends UserError {
  constructor(
    service: string,
    readonly problems: readonly string[], // each names its setting
  ) {
    const lines = problems.map((problem) => `\n  - ${problem}`);
    super(`${service.replace(/^offbeat-/, 'offbeat ')} cannot start:${lines.join('')}`);
  }
}

/** `learner`, `maxSteps` → `--max-steps (or LEARNER_MAX_STEPS)`. */
export function settingName(service: string, key: string): string {
  return `--${kebab(key)} (or ${environmentName(service, key)})`;
}

/** Lists the flags that `loadConfig` accepts for a schema. */
export function flagsOf(shape: z.core.$ZodShape): KnownFlag[] {
  return [...Object.keys(shape), 'config'].map((key) => ({
    name: kebab(key),
    isSwitch: isBoolean(shape[key]),
    isSecret: isSecret(key),
  }));
}

/** `maxSteps` → `max-steps`. */
export function kebab(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** `learner`, `maxSteps` → `LEARNER_MAX_STEPS`. */
export function environmentName(service: string, key: string): string {
  return `${service}-${kebab(key)}`.toUpperCase().replaceAll('-', '_');
}

function isSecret(key: string): boolean {
  return /key$/i.test(key);
}

/** Formats a setting's value for an error message, which ends up in logs, without secrets. */
export function shown(key: string, value: unknown): string {
  if (isSecret(key)) return 'set';
  return JSON.stringify(value).replace(/\/\/.*@/, '//…@'); // a password may have a slash
}

/** @returns what to do instead about a flag that is none here, such as `max-loras`; undefined: nothing is known. */
export type Elsewhere = (flag: string) => string | undefined;

function parseFlags(
  argv: readonly string[],
  shape: z.core.$ZodShape,
  problems: string[],
  elsewhere: Elsewhere,
): Map<string, string | boolean> {
  const byFlag = new Map([...Object.keys(shape), 'config'].map((key) => [kebab(key), key]));
  const isSwitch = (key: string) => isBoolean(shape[key]);
  const flags = new Map<string, string | boolean>();
  const set = (key: string, value: string | boolean) => {
    const before = flags.get(key);
    if (before === undefined) flags.set(key, value);
    else if (isList(shape[key])) flags.set(key, `${String(before)},${String(value)}`);
    else if (isSwitch(key) ? asBoolean(before) !== asBoolean(value) : before !== value) {
      problems.push(givenTwice(key, isSwitch(key) ? undefined : [before, value]));
    }
  };
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i]!;
    const [, name = '', inline] = /^--([a-z0-9-]+)(?:=(.*))?$/s.exec(word) ?? [];
    const positive = byFlag.get(name);
    const negative = name.startsWith('no-') ? byFlag.get(name.slice(3)) : undefined;
    if (positive !== undefined && isSwitch(positive)) {
      set(positive, inline ?? true);
    } else if (positive !== undefined) {
      const value = inline ?? argv[++i];
      if (value === undefined || (inline === undefined && /^--[a-z]/.test(value))) {
        problems.push(`--${name} needs a value`);
        if (value !== undefined) i--;
      } else set(positive, value);
    } else if (negative !== undefined && isSwitch(negative)) {
      set(negative, false);
    } else {
      const switchBefore = /^--[a-z0-9-]+$/.exec(argv[i - 1] ?? '')?.[0];
      const [, meant, more] = /^--?([A-Za-z][\w-]*)(=.*)?$/s.exec(word) ?? [];
      if (meant === undefined && switchBefore !== undefined) {
        problems.push(`${word} is not a flag; ${switchBefore} takes no value`);
        continue;
      }
      const asFlag = kebab(meant ?? word).replaceAll('_', '-');
      const shownWord =
        meant === undefined ? word : word.slice(0, word.length - (more ?? '').length);
      problems.push(
        `${shownWord} is not a flag; ${elsewhere(asFlag) ?? remedy(asFlag, [...byFlag.keys()])}`,
      );
      const isItsValue =
        meant !== undefined && more === undefined && !argv[i + 1]?.startsWith('--');
      if (isItsValue) i++; // do not report its value as a second problem
    }
  }
  return flags;
}

/** @param values undefined: it is a switch. */
function givenTwice(key: string, values: readonly unknown[] | undefined): string {
  const flag = `--${kebab(key)}`;
  if (values === undefined) return `${flag} is switched on and off; remove one of the two`;
  const found = isSecret(key) ? ['two values'] : values.map((value) => shown(key, value));
  return `${flag} is given twice, with ${found.join(' and ')}; it takes one value, so remove one of the two`;
}

const readableAtOnce = 12;

function remedy(name: string, known: readonly string[]): string {
  const meant = nearest(name, known);
  if (meant !== undefined) return `did you mean --${meant}?`;
  if (known.length > readableAtOnce) return '--help lists the flags';
  return `the flags are ${known.map((flag) => `--${flag}`).join(', ')}`;
}

function readFile(
  path: string,
  keys: readonly string[],
  problems: string[],
): Record<string, unknown> {
  try {
    const text = withoutMark(readFileSync(path, 'utf8'));
    const json = z.record(z.string(), z.unknown()).parse(JSON.parse(text));
    for (const key of Object.keys(json)) {
      if (keys.includes(key)) continue;
      const meant = nearest(kebab(key).replaceAll('_', '-'), keys.map(kebab));
      const remedy =
        meant === undefined
          ? ''
          : `; did you mean ${JSON.stringify(keys[keys.map(kebab).indexOf(meant)])}?`;
      problems.push(`${path} has the unknown key ${JSON.stringify(key)}${remedy}`);
    }
    return json;
  } catch (caught) {
    problems.push(`--config ${path} is not a readable JSON object: ${errorText(caught)}`);
    return {};
  }
}

function isBoolean(schema: unknown): boolean {
  let inner = schema;
  while (inner instanceof z.ZodDefault || inner instanceof z.ZodOptional) inner = inner.unwrap();
  return inner instanceof z.ZodBoolean;
}

/** Whether numbers are among the values of a setting. */
function takesNumbers(schema: unknown): boolean {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodOptional) {
    return takesNumbers(schema.unwrap());
  }
  if (schema instanceof z.ZodUnion) return schema.options.some(takesNumbers);
  if (schema instanceof z.ZodPipe) return takesNumbers(schema.in);
  return schema instanceof z.ZodNumber;
}

/** Whether `Number` reads a value as it is meant: blank text, null, false and [] would be 0. */
function isNumeric(given: unknown): boolean {
  return typeof given === 'number' || (typeof given === 'string' && given.trim() !== '');
}

function asBoolean(given: unknown): unknown {
  if (given === 'true' || given === '1') return true;
  if (given === 'false' || given === '0') return false;
  return given;
}

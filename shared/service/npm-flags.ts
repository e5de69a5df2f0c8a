import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs as parseNodeArgs, type ParseArgsConfig } from 'node:util';
import { errorText, UserError } from '../base/errors.js';
import { userErrorCode } from '../base/exit-codes.js';
import { editDistance } from '../base/nearest.js';
import { printError } from './telemetry/print-error.js';

/** A flag of a program: its name without dashes, and what can be said about its value. */
export interface KnownFlag {
  readonly name: string; // max-steps
  readonly isSwitch: boolean; // takes no value
  readonly isSecret?: boolean; // its value must not be printed
}

/** Switches of npm itself with the name of an offbeat flag that takes a value: npm's value is not meant for us. */
const otherwiseInNpm = new Set(['progress']);

/** Names of at least this length are recognized with one wrong letter. */
const shortestMisspelt = 6;

/**
 * Throws if npm consumed flags meant for the program: in `npm start --max-steps=2` the `--` is missing, so
 * npm treats the flag as its own option, drops it with a warning and starts the program without it. The
 * option remains in the environment, as `npm_config_max_steps`.
 *
 * @param script the script that starts the program; under another one, or without npm, nothing is checked.
 * @param argv the arguments that reached the program.
 * @throws {UserError} with the command to type.
 */
export function refuseFlagsKeptByNpm(
  script: string,
  flags: readonly KnownFlag[],
  argv: readonly string[],
  env: NodeJS.ProcessEnv,
): void {
  if (env['npm_lifecycle_event'] !== script) return;
  const kept = flagsKeptByNpm(flags, env);
  if (kept.length === 0) return;
  const needValue = kept.filter(({ value }) => value === undefined);
  // `--max-steps 2` leaves its value in argv; several values cannot be assigned to their flags.
  const loose = argv.filter((word) => !word.startsWith('-'));
  const only = needValue.length === 1 && loose.length === 1 ? loose[0] : undefined;
  const words = kept.map(({ flag, value }) => {
    if (flag.isSwitch) return value === 'false' ? `--no-${flag.name}` : `--${flag.name}`;
    return `--${flag.name}=${flag.isSecret === true ? '…' : quoted(value ?? only ?? '…')}`;
  });
  const arrived = argv.filter((word) => needValue.length === 0 || !loose.includes(word));
  const lost = needValue.length > 0 && only === undefined && loose.length > 0;
  const names = kept.map(({ flag }) => `--${flag.name}`).join(', ');
  const command = script === 'start' ? 'npm start' : `npm run ${script}`;
  throw new UserError(
    `npm kept ${names} for itself: flags of offbeat come after --. Nothing was started; type\n` +
      `  ${[command, '--', ...arrived.map(quoted), ...words].join(' ')}` +
      (lost ? `\nwith the values ${loose.map(quoted).join(', ')} in their places` : ''),
  );
}

/**
 * Node.js' `parseArgs` for a program that is an npm script, after `refuseFlagsKeptByNpm`. On a wrong flag the
 * process exits with code 2 and a message instead of a stack.
 */
export function parseArgs<Config extends ParseArgsConfig>(
  script: string,
  config: Config,
): ReturnType<typeof parseNodeArgs<Config>> {
  const flags = Object.entries(config.options ?? {}).map(([name, { type }]) => ({
    name,
    isSwitch: type === 'boolean',
  }));
  try {
    refuseFlagsKeptByNpm(script, flags, process.argv.slice(2), process.env);
    return parseNodeArgs(config);
  } catch (caught) {
    printError(errorText(caught));
    process.exit(userErrorCode);
  }
}

interface KeptFlag {
  readonly flag: KnownFlag;
  readonly value: string | undefined; // undefined: npm found none
}

function flagsKeptByNpm(flags: readonly KnownFlag[], env: NodeJS.ProcessEnv): KeptFlag[] {
  return Object.entries(env).flatMap(([variable, text = '']) => {
    const [, option] = /^npm_config_(.+)$/.exec(variable) ?? [];
    const flag = option === undefined ? undefined : flagMeant(option, flags);
    if (option === undefined || flag === undefined || isInSettings(option, env)) return [];
    const value = text === '' ? 'false' : text; // npm writes a switch that is off as an empty value
    if (flag.isSwitch) return [{ flag, value }];
    if (otherwiseInNpm.has(flag.name)) return [];
    return [{ flag, value: value === 'true' || value === 'false' ? undefined : value }];
  });
}

/** `max_steps`, `maxsteps` and `max_step` all mean `--max-steps`. */
function flagMeant(option: string, flags: readonly KnownFlag[]): KnownFlag | undefined {
  const asked = letters(option);
  const exact = flags.find(({ name }) => letters(name) === asked);
  if (exact !== undefined || asked.length < shortestMisspelt) return exact;
  return flags.find(({ name }) => editDistance(letters(name), asked) === 1);
}

function letters(name: string): string {
  return name.toLowerCase().replace(/[-_]/g, '');
}

/** Whether one of npm's configuration files sets the option, so that it was not typed. */
function isInSettings(option: string, env: NodeJS.ProcessEnv): boolean {
  const { npm_config_userconfig, npm_config_globalconfig, npm_config_local_prefix } = env;
  const files = [
    npm_config_userconfig,
    npm_config_globalconfig,
    npm_config_local_prefix && join(npm_config_local_prefix, '.npmrc'),
  ];
  return files.some((path) => {
    if (!path) return false;
    try {
      return readFileSync(path, 'utf8')
        .split('\n')
        .some((line) => letters(line.split('=')[0]!.trim()) === letters(option));
    } catch {
      return false; // no such file
    }
  });
}

/** A word as a shell must be given it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./…-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

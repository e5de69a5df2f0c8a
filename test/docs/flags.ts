import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { loadRequest } from '../../cli/dead-letters/command.js';
import { loadEvalConfig } from '../../cli/eval/eval-config.js';
import { serviceNames, services } from '../../cli/services.js';
import { SimulateConfig } from '../../tools/simulate/simulate.js';
import { PackConfig } from '../../tools/gpu-test/pack.js';
import { loadSweepConfig } from '../../tools/sweep/sweep.js';
import { sftCommand } from '../../cli/up/sft.js';
import { loadUpConfig } from '../../cli/up/load-up-config.js';
import { LearnerConfig } from '../../learner/config.js';
import { kebab, loadConfig } from '../../shared/service/config.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { commandSettings } from './settings.js';

type Environment = Readonly<Record<string, string>>;

/** An `offbeat` command in a line: its name, its flags and the variables before it. */
export interface OffbeatCommand {
  readonly name: string;
  readonly flags: readonly string[];
  readonly env: Environment;
}

/** The `offbeat` command that a line of a page starts; undefined if it starts something else. */
export function offbeatCommand(line: string): OffbeatCommand | undefined {
  const words = [...line.matchAll(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g)].map(([word]) =>
    word.replace(/["']/g, ''),
  );
  const env: Record<string, string> = {};
  while (/^[A-Z_]+=/.test(words[0] ?? '')) {
    const [name, value] = words.shift()!.split('=', 2);
    env[name!] = value!;
  }
  const [program, first, ...rest] = words;
  const flags = rest.filter((word) => word !== '--');
  if (program === 'npm' && first === 'start') return { name: 'up', flags, env };
  if (program === 'npm' && first === 'run' && rest[0] === 'sweep') {
    return { name: 'sweep', flags: flags.slice(1), env };
  }
  if (program !== 'npx' || first !== 'offbeat') return undefined;
  return { name: rest[0] ?? 'help', flags: rest.slice(1), env };
}

/**
 * Parses a command's flags by its own parser.
 *
 * @throws {UserError} as the command would.
 */
export async function readFlags({ name, flags, env }: OffbeatCommand): Promise<void> {
  if (flags.includes('--help') || name === 'help') return;
  const known = serviceNames.find((service) => service === name);
  if (known !== undefined) loadConfig(await services[known].config(), known, flags, env);
  else if (name === 'up') loadUpConfig(LearnerConfig, flags, env);
  else if (name === 'sft') loadUpConfig(LearnerConfig, flags, env, sftCommand);
  else if (name === 'eval') loadEvalConfig(flags, env);
  else if (name === 'dead-letters') loadRequest(flags, env);
  else if (name === 'sweep') loadSweepConfig(flags, env);
  else if (name === 'tuft-cpu') await readPythonFlags(flags);
  else readOtherFlags(name, flags, env);
}

/** For commands that only have flags; `solve` also takes its problem as arguments, `model` begins with `get NAME`. */
function readOtherFlags(name: string, words: readonly string[], env: Environment): void {
  const settings = commandSettings[name];
  if (settings === undefined) throw new Error(`offbeat ${name} is not in test/docs/settings.ts`);
  const flags =
    name === 'solve'
      ? words.filter((word) => !/^-?\d+$/.test(word))
      : words.slice(name === 'model' ? 2 : 0);
  loadConfig(z.object(settings.shape), settings.service, flags, env);
}

async function readPythonFlags(flags: readonly string[]): Promise<void> {
  const known = flagsIn(await readFile(join(packageRoot, 'tools/tuft-cpu/tuft_cpu.py'), 'utf8'));
  const unknown = flagsIn(flags.join(' ')).filter((flag) => !known.includes(flag));
  if (unknown.length > 0) throw new Error(`tuft_cpu.py has no ${unknown.join(', ')}`);
}

/** Every flag of our programs. */
export async function knownFlags(): Promise<Set<string>> {
  const shapes = [...Object.values(commandSettings), SimulateConfig, PackConfig].map(
    ({ shape }) => shape,
  );
  const ofSettings = shapes.flatMap((shape) =>
    Object.keys(shape).flatMap((key) => [`--${kebab(key)}`, `--no-${kebab(key)}`]),
  );
  const programs = ['bench', 'chaos', 'elastic', 'compat'].map((name) => `test/${name}/main.ts`);
  const texts = await Promise.all(
    [...programs, 'tools/tuft-cpu/tuft_cpu.py', 'tools/gpu-test/gpu_test.py'].map((path) =>
      readFile(join(packageRoot, path), 'utf8'),
    ),
  );
  const ofPrograms = texts.flatMap((text) => [
    ...flagsIn(text),
    ...[...text.matchAll(/^ +'?([a-z-]+)'?: \{ type: '/gm)].map(([, name]) => `--${name!}`),
  ]);
  return new Set(['--help', '--config', ...ofSettings, ...ofPrograms]);
}

/** The flag-like words of a text. */
export function flagsIn(text: string): string[] {
  return [...text.matchAll(/(?<![\w-])--[a-z][a-z0-9-]*/g)].map(([flag]) => flag);
}

#!/usr/bin/env node
import { join } from 'node:path';
import { describeFlags } from '../shared/service/config-help.js';
import { errorText, UserError } from '../shared/base/errors.js';
import { nearest } from '../shared/base/nearest.js';
import { packageRoot } from '../shared/base/package-root.js';
import { nameSourceLines } from '../shared/base/stack-lines.js';
import { readJson } from '../shared/base/read-json.js';
import type { Environment } from '../shared/service/config.js';
import { endWithNpx } from './end-with-npx.js';
import { serviceNames, services, type ServiceName } from './services.js';
import { noRoomReason } from '../shared/service/telemetry/disk-room.js';
import { printError } from '../shared/service/telemetry/print-error.js';

const purposes: Readonly<Record<ServiceName, string>> = {
  actor: 'samples groups of rollouts with the newest policy',
  learner: 'turns scored groups into policy updates',
  'reward-service': 'scores rollouts',
  'score-server': 'scores over HTTP, without NATS and without a run',
  'local-backend': 'a Tinker server that trains a small model on this CPU',
};

/** What a command does. */
interface Action {
  /** The exit code; undefined if a service has set it by itself. */
  readonly run: (flags: readonly string[], env: Environment) => Promise<number | undefined>;
  /** Undefined if `run` prints its own help. */
  readonly help?: () => string | Promise<string>;
}

interface Command {
  readonly words?: string; // what follows its name in the overview
  readonly purpose: string;
  /** Imports the command: each process of a run is one of them, and should not load the others. */
  readonly load: () => Promise<Action>;
}

/** In the order of the overview. */
const commands: ReadonlyMap<string, Command> = new Map<string, Command>([
  [
    'up',
    {
      purpose: 'trains on this machine: starts everything, shows progress, ends everything',
      load: async () => {
        const { up, upHelp } = await import('./up/up.js');
        return { run: up, help: upHelp };
      },
    },
  ],
  [
    'sft',
    {
      purpose: 'trains on solutions or examples of your own, before reinforcement learning',
      load: async () => {
        const { sft, sftHelp } = await import('./up/sft.js');
        return { run: sft, help: sftHelp };
      },
    },
  ],
  [
    'status',
    {
      purpose: 'what a run is doing now, here or on another machine',
      load: async () => {
        const { status, statusHelp } = await import('./status/status.js');
        return { run: status, help: statusHelp };
      },
    },
  ],
  [
    'doctor',
    {
      purpose: 'checks what training needs, and gives the remedy for each fault',
      load: async () => {
        const { doctor, doctorHelp } = await import('./doctor/doctor.js');
        return { run: doctor, help: doctorHelp };
      },
    },
  ],
  [
    'model',
    {
      words: 'get NAME|PATH',
      purpose: 'a language model from the Hugging Face hub, a directory or a GGUF file',
      load: async () => {
        const { model, modelHelp } = await import('./model/command.js');
        return { run: model, help: modelHelp };
      },
    },
  ],
  [
    'eval',
    {
      purpose: 'measures a policy version of a run on held-out problems',
      load: async () => {
        const { evalRun, evalHelp } = await import('./eval/eval.js');
        return { run: evalRun, help: evalHelp };
      },
    },
  ],
  [
    'export',
    {
      purpose: 'the metrics of a run for TensorBoard, Weights & Biases or a spreadsheet',
      load: async () => {
        const { exportRun, exportHelp } = await import('./export/export.js');
        return { run: exportRun, help: exportHelp };
      },
    },
  ],
  [
    'dashboard',
    {
      purpose: 'the page of a run, in progress or over',
      load: async () => {
        const { dashboard, dashboardHelp } = await import('./dashboard/dashboard.js');
        return { run: dashboard, help: dashboardHelp };
      },
    },
  ],
  [
    'report',
    {
      purpose: 'the same page as a single file',
      load: async () => {
        const { report, reportHelp } = await import('./dashboard/report.js');
        return { run: report, help: reportHelp };
      },
    },
  ],
  [
    'dead-letters',
    {
      purpose: 'lists, shows, replays or purges the messages that a run gave up',
      load: async () => {
        const { deadLetters, deadLettersHelp } = await import('./dead-letters/command.js');
        return { run: deadLetters, help: deadLettersHelp };
      },
    },
  ],
  [
    'delete',
    {
      purpose: 'deletes what a finished run has left on servers',
      load: async () => {
        const { deleteRun, deleteHelp } = await import('./delete/command.js');
        return { run: deleteRun, help: deleteHelp };
      },
    },
  ],
  [
    'sweep',
    {
      words: 'FILE',
      purpose: 'runs an experiment and writes its report',
      load: async () => {
        const { sweep, sweepHelp } = await import('../tools/sweep/sweep.js');
        return { run: sweep, help: sweepHelp };
      },
    },
  ],
  ...serviceNames.map((name): [string, Command] => [
    name,
    {
      purpose: purposes[name],
      load: () =>
        Promise.resolve({
          run: (flags, env) => runService(name, flags, env),
          help: () => serviceHelp(name),
        }),
    },
  ]),
  [
    'solve',
    {
      purpose: 'a solution of a Countdown problem: offbeat solve 3 7 21 84',
      load: async () => {
        const { solveCommand, solveHelp } = await import('../tools/solve/solve.js');
        const print = (text: string) => process.stdout.write(text);
        return { run: (flags, env) => solveCommand(flags, env, print), help: solveHelp };
      },
    },
  ],
  [
    'nats-config',
    {
      purpose: 'keys and permissions for a run on your own NATS server',
      load: async () => {
        const { natsConfig, natsConfigHelp } = await import('./nats-config.js');
        return { run: natsConfig, help: natsConfigHelp };
      },
    },
  ],
  [
    'tuft-cpu',
    {
      purpose: 'the real TuFT server on this CPU, in a separate Python environment',
      load: async () => ({ run: (await import('../tools/tuft-cpu/tuft-cpu.js')).tuftCpu }),
    },
  ],
  [
    'help',
    {
      words: '[COMMAND]',
      purpose: 'this text, or what a command does and its flags, as offbeat COMMAND --help',
      load: () => Promise.resolve({ run: help }),
    },
  ],
]);

nameSourceLines();
endWithNpx(process.env);
try {
  const exitCode = await run(process.argv.slice(2));
  if (exitCode !== undefined) process.exitCode = exitCode;
} catch (caught) {
  const noRoom = noRoomReason(caught);
  if (!(caught instanceof UserError) && noRoom === undefined) throw caught;
  printError(noRoom === undefined ? errorText(caught) : `${noRoom}: ${errorText(caught)}`);
  process.exitCode = 2;
}

async function run([word, ...flags]: readonly string[]): Promise<number | undefined> {
  if (word === '--version' || word === '-v' || word === 'version') {
    const { version } = (await readJson(join(packageRoot, 'package.json'))) as { version: string };
    process.stdout.write(`${version}\n`);
    return 0;
  }
  const command = commands.get(isHelp(word) ? 'help' : (word ?? ''));
  if (command === undefined) {
    const found = word === undefined ? 'a command is missing' : `unknown command ${word}`;
    const meant =
      word === undefined ? undefined : nearest(word.toLowerCase(), [...commands.keys()]);
    throw new UserError(
      meant === undefined
        ? `${found}; one of ${[...commands.keys()].join(', ')} is expected`
        : `${found}; did you mean ${meant}?`,
    );
  }
  const action = await command.load();
  if (action.help === undefined || !flags.some(isHelp)) {
    return await action.run(flags, process.env);
  }
  process.stdout.write(await action.help());
  return 0;
}

async function help([word]: readonly string[]): Promise<number | undefined> {
  if (word !== undefined && word !== 'help' && !isHelp(word)) return await run([word, '--help']);
  process.stdout.write(overview());
  return 0;
}

function isHelp(word: string | undefined): boolean {
  return word === '--help' || word === '-h';
}

function overview(): string {
  const lines = [...commands].map(
    ([name, { words = '', purpose }]) =>
      `  ${`${name} ${words}`.trimEnd().padEnd(14)}  ${purpose}\n`,
  );
  return `usage: offbeat <command> [flags]\n       offbeat --version\n\n${lines.join('')}`;
}

async function serviceHelp(service: ServiceName): Promise<string> {
  const { shape } = await services[service].config();
  return `offbeat ${service}: ${purposes[service]}.\n\n${describeFlags(shape, service)}\n`;
}

async function runService(
  service: ServiceName,
  flags: readonly string[],
  env: Environment,
): Promise<undefined> {
  const main = await services[service].main();
  await main(flags, env);
}

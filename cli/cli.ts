#!/usr/bin/env node
import { describeFlags } from '../shared/service/config-help.js';
import { errorText, UserError } from '../shared/base/errors.js';
import { nearest } from '../shared/base/nearest.js';
import type { Environment } from '../shared/service/config.js';
import { dashboard, dashboardHelp } from './dashboard/dashboard.js';
import { report, reportHelp } from './dashboard/report.js';
import { deadLetters, deadLettersHelp } from './dead-letters/command.js';
import { doctor, doctorHelp } from './doctor/doctor.js';
import { endWithNpx } from './end-with-npx.js';
import { evalHelp, evalRun } from './eval/eval.js';
import { exportHelp, exportRun } from './export/export.js';
import { loadSchema, serviceFile, serviceNames, type ServiceName } from './load-schema.js';
import { natsConfig, natsConfigHelp } from './nats-config.js';
import { solveCommand, solveHelp } from '../tools/solve/solve.js';
import { status, statusHelp } from './status/status.js';
import { sweep, sweepHelp } from '../tools/sweep/sweep.js';
import { tuftCpu } from '../tools/tuft-cpu/tuft-cpu.js';
import { up, upHelp } from './up/up.js';
import { noRoomReason } from '../shared/service/telemetry/disk-room.js';
import { printError } from '../shared/service/telemetry/print-error.js';

const purposes: Readonly<Record<ServiceName, string>> = {
  actor: 'samples groups of rollouts with the newest policy',
  learner: 'turns scored groups into policy updates',
  'reward-service': 'scores rollouts',
  'score-server': 'scores over HTTP, without NATS and without a run',
  'local-backend': 'a Tinker server that trains a small model on this CPU',
};

interface Command {
  readonly words?: string; // what follows its name in the overview
  readonly purpose: string;
  /** The exit code; nothing if a service has set it by itself. */
  readonly run: (flags: readonly string[], env: Environment) => Promise<number | undefined>;
  /** Nothing if `run` prints its own help. */
  readonly help?: () => string | Promise<string>;
}

/** In the order of the overview. */
const commands: ReadonlyMap<string, Command> = new Map<string, Command>([
  [
    'up',
    {
      purpose: 'trains on this machine: starts everything, shows progress, ends everything',
      run: up,
      help: upHelp,
    },
  ],
  [
    'status',
    {
      purpose: 'what a run is doing now, here or on another machine',
      run: status,
      help: statusHelp,
    },
  ],
  [
    'doctor',
    {
      purpose: 'checks what training needs, and gives the remedy for each fault',
      run: doctor,
      help: doctorHelp,
    },
  ],
  [
    'eval',
    {
      purpose: 'measures a policy version of a run on held-out problems',
      run: evalRun,
      help: evalHelp,
    },
  ],
  [
    'export',
    {
      purpose: 'the metrics of a run for TensorBoard, Weights & Biases or a spreadsheet',
      run: exportRun,
      help: exportHelp,
    },
  ],
  [
    'dashboard',
    {
      purpose: 'the page of a run, in progress or over',
      run: dashboard,
      help: dashboardHelp,
    },
  ],
  [
    'report',
    {
      purpose: 'the same page as a single file',
      run: report,
      help: reportHelp,
    },
  ],
  [
    'dead-letters',
    {
      purpose: 'lists, shows, replays or purges the messages that a run gave up',
      run: deadLetters,
      help: deadLettersHelp,
    },
  ],
  [
    'sweep',
    {
      words: 'FILE',
      purpose: 'makes the runs of an experiment and their report',
      run: sweep,
      help: sweepHelp,
    },
  ],
  ...serviceNames.map((name): [string, Command] => [
    name,
    {
      purpose: purposes[name],
      run: async (flags) => {
        await runService(name, flags);
        return undefined;
      },
      help: () => serviceHelp(name),
    },
  ]),
  [
    'solve',
    {
      purpose: 'a solution of a Countdown problem: offbeat solve 3 7 21 84',
      run: (flags, env) => solveCommand(flags, env, (text) => process.stdout.write(text)),
      help: solveHelp,
    },
  ],
  [
    'nats-config',
    {
      purpose: 'keys and permissions for a run on your own NATS server',
      run: natsConfig,
      help: natsConfigHelp,
    },
  ],
  [
    'tuft-cpu',
    {
      purpose: 'the real TuFT server on this CPU, in a separate Python environment',
      run: tuftCpu,
    },
  ],
  [
    'help',
    {
      words: '[COMMAND]',
      purpose: 'this text, or what a command does and its flags, as offbeat COMMAND --help',
      run: async ([word]) => {
        if (word !== undefined && word !== 'help' && !isHelp(word))
          return await run([word, '--help']);
        process.stdout.write(overview());
        return 0;
      },
    },
  ],
]);

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
  const command = commands.get(isHelp(word) ? 'help' : (word ?? ''));
  if (command === undefined) {
    const found = word === undefined ? 'a command is missing' : `unknown command ${word}`;
    const meant = word === undefined ? undefined : nearest(word, [...commands.keys()]);
    throw new UserError(
      meant === undefined
        ? `${found}; one of ${[...commands.keys()].join(', ')} is expected`
        : `${found}; did you mean ${meant}?`,
    );
  }
  if (command.help === undefined || !flags.some(isHelp)) {
    return await command.run(flags, process.env);
  }
  process.stdout.write(await command.help());
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
  return `usage: offbeat <command> [flags]\n\n${lines.join('')}`;
}

async function serviceHelp(service: ServiceName): Promise<string> {
  const { shape } = await loadSchema(service);
  return `offbeat ${service}: ${purposes[service]}.\n\n${describeFlags(shape, service)}\n`;
}

async function runService(service: ServiceName, flags: readonly string[]): Promise<void> {
  const module = (await import(serviceFile(service, 'main.js'))) as {
    main(argv: readonly string[], env: Environment): Promise<void>;
  };
  await module.main(flags, process.env);
}

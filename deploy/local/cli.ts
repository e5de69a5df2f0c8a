#!/usr/bin/env node
import { describeFlags } from '../../shared/config-help.js';
import { UserError } from '../../shared/errors.js';
import { deadLetters, deadLettersHelp } from './dead-letters/command.js';
import { evalHelp, evalRun } from './eval/eval.js';
import { loadSchema, serviceFile, serviceNames, type ServiceName } from './load-schema.js';
import { natsConfig, natsConfigHelp } from './nats-config.js';
import { solveCommand, solveHelp } from './solve.js';
import { sweep, sweepHelp } from './sweep/sweep.js';
import { tuftCpu } from './tuft-cpu.js';
import { up, upHelp } from './up.js';

const purposes: Readonly<Record<ServiceName, string>> = {
  actor: 'samples groups of rollouts with the newest policy',
  learner: 'turns scored groups into policy updates',
  'reward-service': 'scores rollouts',
  'score-server': 'scores over HTTP, without NATS and without a run',
  'local-backend': 'a Tinker server that trains a small model on this CPU',
};

const overview = `usage: offbeat <command> [flags]

  up              trains on this machine: starts everything, shows progress, ends everything
  eval            measures a policy version of a run on held-out problems
  dead-letters    lists, shows, replays or purges the messages that a run gave up
  sweep FILE      makes the runs of an experiment, and a report of them
${serviceNames.map((name) => `  ${name.padEnd(14)}  ${purposes[name]}`).join('\n')}
  solve           a solution of a Countdown problem: offbeat solve 3 7 21 84
  nats-config     keys and permissions for a run on a NATS server of your own
  tuft-cpu        the real TuFT server on this CPU, in a Python environment of its own
  help            this text; offbeat <command> --help explains its flags
`;

try {
  const exitCode = await run(process.argv.slice(2));
  if (exitCode !== undefined) process.exitCode = exitCode;
} catch (caught) {
  if (!(caught instanceof UserError)) throw caught;
  process.stderr.write(`${caught.message}\n`);
  process.exitCode = 2;
}

/** The exit code; undefined where a service has set it by itself. */
async function run([command, ...flags]: readonly string[]): Promise<number | undefined> {
  const wantsHelp = flags.includes('--help') || flags.includes('-h');
  switch (command) {
    case 'help':
    case '--help':
    case '-h':
      process.stdout.write(overview);
      return 0;
    case 'up':
      if (!wantsHelp) return await up(flags, process.env);
      process.stdout.write(await upHelp());
      return 0;
    case 'eval':
      if (!wantsHelp) return await evalRun(flags, process.env);
      process.stdout.write(evalHelp());
      return 0;
    case 'dead-letters':
      if (!wantsHelp) return await deadLetters(flags, process.env);
      process.stdout.write(deadLettersHelp());
      return 0;
    case 'sweep':
      if (!wantsHelp) return await sweep(flags, process.env);
      process.stdout.write(sweepHelp());
      return 0;
    case 'solve':
      if (!wantsHelp)
        return await solveCommand(flags, process.env, (text) => process.stdout.write(text));
      process.stdout.write(solveHelp());
      return 0;
    case 'nats-config':
      if (!wantsHelp) return await natsConfig(flags, process.env);
      process.stdout.write(natsConfigHelp());
      return 0;
    case 'tuft-cpu':
      return await tuftCpu(flags, process.env);
    default: {
      const service = serviceNames.find((name) => name === command);
      if (service === undefined) {
        const found = command === undefined ? 'a command is missing' : `unknown command ${command}`;
        throw new UserError(
          `${found}; one of up, eval, dead-letters, sweep, ${serviceNames.join(', ')}, solve, nats-config, tuft-cpu, help is expected`,
        );
      }
      if (wantsHelp) process.stdout.write(await serviceHelp(service));
      else await runService(service, flags);
      return undefined;
    }
  }
}

async function serviceHelp(service: ServiceName): Promise<string> {
  const { shape } = await loadSchema(service);
  return `offbeat ${service}: ${purposes[service]}.\n\n${describeFlags(shape, service)}\n`;
}

async function runService(service: ServiceName, flags: readonly string[]): Promise<void> {
  const module = (await import(serviceFile(service, 'main.js'))) as {
    main(argv: readonly string[], env: NodeJS.ProcessEnv): Promise<void>;
  };
  await module.main(flags, process.env);
}

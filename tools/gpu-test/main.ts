import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join, resolve } from 'node:path';
import { UserError } from '../../shared/base/errors.js';
import { cacheFolder } from '../../shared/base/package-root.js';
import { loadConfig } from '../../shared/service/config.js';
import { describeFlags } from '../../shared/service/config-help.js';
import { printError } from '../../shared/service/telemetry/print-error.js';
import { pack, PackConfig, type Manifest } from './pack.js';

/** Packs the GPU test, or packs it and runs it on this machine with the flags after `--`. */
async function main(words: readonly string[]): Promise<void> {
  if (words.includes('--help')) {
    process.stdout.write(
      `npm run test:gpu -- [FLAGS] [-- FLAGS OF ./run]\n\n${describeFlags(PackConfig.shape, 'gpu')}\n`,
    );
    return;
  }
  const end = words.indexOf('--');
  const [ours, passed] = end === -1 ? [words, []] : [words.slice(0, end), words.slice(end + 1)];
  const { pack: folder, python } = loadConfig(PackConfig, 'gpu', ours, process.env);
  const target = resolve(folder ?? join(cacheFolder, 'gpu-test'));
  const natsServer = process.env['OFFBEAT_NATS_SERVER']!; // set by cli/bootstrap.mjs
  const manifest = await pack({ folder: target, python, natsServer, report: printError });
  if (folder === undefined) {
    const child = spawn(join(target, 'run'), passed, { stdio: 'inherit' });
    const [code] = (await once(child, 'close')) as [number | null];
    process.exitCode = code ?? 1;
    return;
  }
  process.stdout.write(listing(manifest, target));
}

function listing({ pieces, contents }: Manifest, folder: string): string {
  const mb = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
  const lines = [
    ...pieces.map(({ name, bytes, sha256 }) => `${name}  ${mb(bytes)}  ${sha256}`),
    '',
    ...contents.map(({ name, bytes }) => `  ${mb(bytes).padStart(9)}  ${name}`),
    '',
    `Copy ${folder} to the machine and start ./run there; ./run --help lists its flags.`,
  ];
  return `${lines.join('\n')}\n`;
}

try {
  await main(process.argv.slice(2));
} catch (caught) {
  if (!(caught instanceof UserError)) throw caught;
  printError(caught.message);
  process.exitCode = 2;
}

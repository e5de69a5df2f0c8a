import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runCommand } from '../../cli/run-command.js';
import { cacheFolder, packageRoot } from '../../shared/base/package-root.js';

/** A browser that is unpacked into its own folder until it is disposed of. */
export interface OwnBrowser extends AsyncDisposable {
  readonly executablePath: string;
  readonly env: Readonly<Record<string, string>>; // the paths of its libraries and fonts
}

/**
 * A headless Chromium from the package registry, with its libraries, for a machine that
 * has none: 75 MB into the project's cache, as locked in `test/support/chromium`.
 *
 * @throws {Error} that names what is unavailable.
 */
export async function unpackBrowser(): Promise<OwnBrowser> {
  const installed = await install();
  const folder = await mkdtemp(join(tmpdir(), 'offbeat-chromium-'));
  try {
    // The package unpacks its libraries only if it believes that it runs in its cloud's container.
    const unpack =
      "const { default: chromium } = await import('@sparticuz/chromium');" +
      'const executablePath = await chromium.executablePath();' +
      'const { LD_LIBRARY_PATH, FONTCONFIG_PATH } = process.env;' +
      'console.log(JSON.stringify({ executablePath, env: { LD_LIBRARY_PATH, FONTCONFIG_PATH } }));';
    const variables = [`TMPDIR=${folder}`, 'AWS_LAMBDA_JS_RUNTIME=nodejs20.x'];
    const node = [process.execPath, '--input-type=module', '--eval', unpack];
    const unpacked = await run('env', [...variables, ...node], installed);
    const place = JSON.parse(unpacked) as Pick<OwnBrowser, 'executablePath' | 'env'>;
    // Its own settings name /tmp/fonts wherever it was unpacked, and without fonts no text has a height.
    const settings = join(folder, 'fonts.conf');
    const folders = `<dir>${join(folder, 'fonts')}</dir><cachedir>${join(folder, 'cache')}</cachedir>`;
    await writeFile(settings, `<?xml version="1.0"?><fontconfig>${folders}</fontconfig>`);
    return {
      ...place,
      env: { ...place.env, FONTCONFIG_FILE: settings },
      [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
    };
  } catch (caught) {
    await rm(folder, { recursive: true, force: true });
    throw caught;
  }
}

/** @returns the folder with the package, which an earlier run may have filled. */
async function install(): Promise<string> {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new Error(`there is none to be had for ${process.platform} ${process.arch}`);
  }
  const locked = join(packageRoot, 'test/support/chromium');
  const lock = await readFile(join(locked, 'package-lock.json'));
  const digest = createHash('sha256').update(lock).digest('hex').slice(0, 16);
  const folder = join(cacheFolder, 'chromium', digest);
  if (!existsSync(join(folder, 'node_modules/.package-lock.json'))) {
    // the file that npm writes last
    await cp(locked, folder, { recursive: true });
    await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], folder);
  }
  return folder;
}

async function run(command: string, args: readonly string[], cwd: string): Promise<string> {
  const { code, output } = await runCommand(command, args, { cwd, timeoutMs: 180_000 });
  if (code !== 0) throw new Error(`${command} says: ${output.slice(-300)}`);
  return output;
}

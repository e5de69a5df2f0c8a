import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { UserError } from '../../shared/base/errors.js';
import { ensurePackages, pathOf } from './packages.js';
import { testSdk } from './sdk.js';
import { type Check, runPython, type SuiteContext } from './suite.js';

/** The newest patches of an older and of later minor versions than 0.25, which the environment has. */
const versions = ['0.24.1', '0.28.1', '0.33.1', '0.38.0'];

/**
 * The checks of the suite `sdk` with other versions of the SDK, in the short form with the oldest and the newest only; and, in
 * the full form, whether the newest SDK that pip offers sends anything that known-protocol.json lacks.
 *
 * @throws {UserError} at the end, if a version could not be installed.
 */
export async function testSdkVersions(context: SuiteContext): Promise<void> {
  const chosen = context.isShort ? [versions[0]!, versions.at(-1)!] : versions;
  const unavailable: string[] = [];
  const tests = chosen.map((version) => () => testVersion(context, version));
  // Not in the short form: a release of somebody else must not stop a change here.
  if (!context.isShort) tests.push(() => testNewestProtocol(context));
  for (const test of tests) {
    try {
      await test();
    } catch (caught) {
      if (!(caught instanceof UserError)) throw caught;
      context.note(`  ${caught.message}`);
      unavailable.push(caught.message);
    }
  }
  if (unavailable.length > 0) throw new UserError(unavailable.join('; '));
}

async function testVersion(context: SuiteContext, version: string): Promise<void> {
  const packages = await ensurePackages(context, [`tinker==${version}`]);
  const folder = join(context.folder, version); // the checkpoints of each version apart
  await mkdir(folder);
  let count = 0;
  const report = (check: Check) => {
    count += 1;
    context.report({ ...check, check: `${version}: ${check.check}` });
  };
  await context.step(`${version}: checks`, 'runs to its end', async () => {
    await testSdk({ ...context, folder, report }, packages);
    return count;
  });
}

/** Installed anew each time, since no version is named. */
async function testNewestProtocol(context: SuiteContext): Promise<void> {
  const packages = await ensurePackages(context, ['tinker'], context.folder);
  await runPython(context, 'sdk/protocol.py', ['--check'], pathOf(packages));
}

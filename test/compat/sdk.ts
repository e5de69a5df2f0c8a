import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { startBackendProcess } from './backend-process.js';
import { pathOf } from './packages.js';
import { runPython, type SuiteContext } from './suite.js';

/**
 * The real Python SDK against the local backend with the embedded model.
 *
 * @param packages a folder with another SDK than that of the environment (ensurePackages).
 */
export async function testSdk(context: SuiteContext, packages?: string): Promise<void> {
  await using backend = await startBackendProcess(context, embeddedModelPath);
  const env = { ...backend.env, ...pathOf(packages) };
  await runPython(context, 'sdk/main.py', [embeddedModelPath], env);
}

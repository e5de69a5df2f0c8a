import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { startBackendProcess } from './backend-process.js';
import { runPython, type SuiteContext } from './suite.js';

/** The real Python SDK, by its public API alone, against the local backend with the embedded model. */
export async function testSdk(context: SuiteContext): Promise<void> {
  await using backend = await startBackendProcess(context, embeddedModelPath);
  await runPython(context, 'sdk/main.py', [embeddedModelPath], backend.env);
}

import { join } from 'node:path';
import { ServiceProcess } from '../support/service-process.js';
import type { SuiteContext } from './suite.js';

export interface BackendProcess extends AsyncDisposable {
  readonly url: string;
  readonly apiKey: string;
  /** The variables from which the SDK reads its server and key; downloads are disabled. */
  readonly env: NodeJS.ProcessEnv;
}

/**
 * The local backend as users start it, ready to train. It serves the model under the path of its
 * directory, since the SDK reads a model's tokenizer from the path that is the model's name.
 */
export async function startBackendProcess(
  { folder }: SuiteContext,
  modelDir: string,
): Promise<BackendProcess> {
  const apiKey = 'tml-compat-key';
  const service = new ServiceProcess('local-backend', ['--port', '0'], {
    LOCAL_BACKEND_API_KEY: apiKey,
    LOCAL_BACKEND_MODEL_DIR: modelDir,
    LOCAL_BACKEND_MODEL_NAME: modelDir,
    LOCAL_BACKEND_CHECKPOINT_DIR: join(folder, 'checkpoints'),
    LOCAL_BACKEND_THREADS: '2',
  });
  try {
    const url = String((await service.says(({ msg }) => msg === 'listening'))['url']);
    await service.says(({ msg }) => msg === 'ready');
    const env = {
      TINKER_BASE_URL: url,
      TINKER_API_KEY: apiKey,
      HF_HUB_OFFLINE: '1',
      HF_DATASETS_OFFLINE: '1',
      HF_HOME: join(folder, 'huggingface'),
    };
    return { url, apiKey, env, [Symbol.asyncDispose]: () => service[Symbol.asyncDispose]() };
  } catch (error) {
    await service[Symbol.asyncDispose]();
    throw error;
  }
}

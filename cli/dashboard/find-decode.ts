import {
  checkModelDirectory,
  embeddedModelPath,
  readModelDirectory,
} from '../../shared/model/model-directory.js';
import type { FindDecode } from './run/live-run.js';

/**
 * Finds the words of a run's tokens in its model's directory. Without one it is the model of this
 * repository, if that is the one that the run trains; a large model is not read to make sure.
 *
 * @throws {UserError} if the directory that is given cannot be read; before a run is looked at.
 */
export async function findDecodeIn(modelDir: string | undefined): Promise<FindDecode> {
  const given = modelDir === undefined ? undefined : await checkModelDirectory(modelDir);
  return async ({ model }) => {
    const folder = given ?? (await readModelDirectory(embeddedModelPath));
    if ('digest' in folder && folder.digest !== model.digest) return undefined;
    // Not before it is needed: its library is large, and every offbeat command would load it.
    const { loadTokenizer } = await import('../../shared/model/tokenizer.js');
    return (await loadTokenizer(folder)).decode;
  };
}

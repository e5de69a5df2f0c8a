import { errorText, UserError } from '../../shared/base/errors.js';
import { checkModelDirectory } from '../../shared/model/model-directory.js';
import { storedWeights, type ModelFolder } from '../../shared/model/model-weights.js';
import { finding, ok, type Finding } from './finding.js';

/** Whether the model can be run here, and its tokenizer encodes and decodes text. */
export async function modelFindings(
  modelDir: string,
  nodeVersion = process.versions.node,
): Promise<Finding[]> {
  let folder: ModelFolder;
  try {
    folder = await checkModelDirectory(modelDir);
  } catch (caught) {
    return [broken('model', caught)];
  }
  const { vocabSize, maxPositions } = folder.config;
  const model = ok('model', `${modelDir}: ${vocabSize} tokens known, ${maxPositions} in a context`);
  try {
    const stored = await storedWeights(folder);
    const dtypes = [...stored.values()].map(({ dtype }) => dtype);
    return [model, await tokenizerFinding(folder), ...weightFindings(dtypes, nodeVersion)];
  } catch (caught) {
    return [model, broken('tokenizer', caught)];
  }
}

const sample = '3 17 21=72:17*3+21';

async function tokenizerFinding(folder: ModelFolder): Promise<Finding> {
  const { loadTokenizer } = await import('../../shared/model/tokenizer.js'); // slow to load
  const tokenizer = await loadTokenizer(folder);
  const tokens = tokenizer.encode(sample);
  const text = tokenizer.decode(tokens);
  const largest = Math.max(...tokens);
  const found = `${JSON.stringify(sample)} makes ${tokens.length} tokens`;
  if (text !== sample) {
    return finding(
      'tokenizer',
      'error',
      `${found}, which read ${JSON.stringify(text)}`,
      'modelBroken',
    );
  }
  return largest >= folder.config.vocabSize
    ? finding(
        'tokenizer',
        'error',
        `${found}, ${largest} among them, which the model has not`,
        'modelBroken',
      )
    : ok('tokenizer', `${found} and reads the same`);
}

/** What the ONNX Runtime of this release does not run on this Node.js. */
export function weightFindings(dtypes: readonly string[], nodeVersion: string): Finding[] {
  const hasHalf = dtypes.includes('F16');
  if (!hasHalf || Number.parseInt(nodeVersion) < 24) return [];
  const found = `it has weights in fp16, which ONNX Runtime refuses on Node.js ${nodeVersion}`;
  return [finding('weights', 'warning', found, 'halfWeights')];
}

/** Whether any model can be run: the native library of ONNX Runtime is for one platform. */
export async function runtimeFindings(): Promise<Finding[]> {
  try {
    await import('onnxruntime-node');
    return [ok('runtime', 'ONNX Runtime loads')];
  } catch (caught) {
    return [finding('runtime', 'error', errorText(caught), 'noRuntime')];
  }
}

function broken(check: string, caught: unknown): Finding {
  if (!(caught instanceof UserError)) throw caught;
  return finding(check, 'error', caught.message, 'modelBroken');
}

import type { z } from 'zod';
import { PermanentError } from '../shared/base/errors.js';
import type { ForwardBackwardJsonRequest, JsonTensor } from '../shared/tinker/api.js';
import { checkData } from '../shared/rl/datum.js';
import { lossInputs } from '../shared/rl/losses.js';
import { lossNamed } from '../shared/tinker/codec.js';
import type { ForwardBackwardRequest } from '../shared/tinker/types.js';

/**
 * The JSON form of forward_backward, spoken by SDKs up to 0.24.
 *
 * @throws {PermanentError} naming the loss or the datum that is wrong.
 */
export function decodeJsonForwardBackward(
  { model_id: modelId, seq_id: seqId }: { model_id: string; seq_id: number },
  input: z.output<typeof ForwardBackwardJsonRequest>['forward_backward_input'],
  isForwardOnly: boolean,
): ForwardBackwardRequest {
  const loss = lossNamed(input.loss_fn);
  const data = input.data.map(({ model_input, loss_fn_inputs: inputs }, i) => {
    const read = (name: string) => {
      const tensor = inputs[name];
      return tensor && readDense(`datum ${i}: ${name}`, tensor);
    };
    const target = read('target_tokens');
    if (target === undefined) throw new PermanentError(`datum ${i} has no target_tokens`);
    const present = lossInputs.flatMap((name) => {
      const values = read(name);
      return values === undefined ? [] : [[name, Float32Array.from(values)] as const];
    });
    return {
      tokens: Int32Array.from(model_input.chunks.flatMap(({ tokens }) => tokens)),
      targetTokens: Int32Array.from(target),
      inputs: Object.fromEntries(present),
    };
  });
  checkData(data);
  return { modelId, seqId, data, loss, config: input.loss_fn_config ?? {}, isForwardOnly };
}

function readDense(place: string, tensor: JsonTensor): readonly number[] {
  const { data, shape = [data.length] } = tensor;
  if (tensor.sparse_crow_indices !== undefined || tensor.sparse_col_indices !== undefined) {
    throw new PermanentError(`${place}: expected a dense tensor, found a sparse one`);
  }
  if (shape.length === 1 && shape[0] === data.length) return data;
  const found = `shape [${shape.join(', ')}] for ${data.length} elements`;
  throw new PermanentError(`${place}: ${found}, not 1-D`);
}

import type { z } from 'zod';
import { PermanentError } from '../../shared/errors.js';
import type { ForwardBackwardJsonRequest } from '../../shared/tinker/api.js';
import { checkData } from '../../shared/tinker/datum.js';
import { lossInputs, type ForwardBackwardRequest } from '../../shared/tinker/types.js';
import { LossName } from '../../shared/wire/run-config.js';

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
  const loss = LossName.safeParse(input.loss_fn);
  if (!loss.success) {
    throw new PermanentError(
      `loss_fn is ${JSON.stringify(input.loss_fn)}, expected ${LossName.options.join(', ')}`,
    );
  }
  const data = input.data.map(({ model_input, loss_fn_inputs: inputs }, i) => {
    const target = inputs['target_tokens'];
    if (target === undefined) throw new PermanentError(`datum ${i} has no target_tokens`);
    const present = lossInputs.flatMap((name) => {
      const values = inputs[name]?.data;
      return values === undefined ? [] : [[name, Float32Array.from(values)] as const];
    });
    return {
      tokens: Int32Array.from(model_input.chunks.flatMap(({ tokens }) => tokens)),
      targetTokens: Int32Array.from(target.data),
      inputs: Object.fromEntries(present),
    };
  });
  checkData(data);
  return {
    modelId,
    seqId,
    data,
    loss: loss.data,
    config: input.loss_fn_config ?? {},
    isForwardOnly,
  };
}

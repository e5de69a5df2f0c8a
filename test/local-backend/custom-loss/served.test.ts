import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { LocalBackend } from '../../../local-backend/local-backend.js';
import { encodeForwardBackwardRequest, protobufType } from '../../../shared/tinker/codec.js';
import * as pb from '../../../shared/tinker/tinker_pb.js';
import { forwardBackward, startOn, tinyModel, Wire } from '../running-backend.js';
import { customLossBody } from './traced.js';

/** -Σ w·ℓ, which is cross_entropy, and the sum of the weights. */
const weighted = () =>
  customLossBody(
    (trace, logprobs, weights) => {
      const product = trace.call('operator.mul', logprobs, weights);
      trace.returns(trace.call('operator.neg', trace.method('sum', product)), {
        'custom/weight:sum': trace.method('sum', weights),
        'custom/weight:mean': trace.method('sum', weights),
      });
    },
    { weights: 1 },
  );

describe('a custom loss at the local backend', () => {
  let directory: Awaited<ReturnType<typeof tinyModel>>;
  let backend: LocalBackend;
  let wire: Wire;
  let session: string;

  before(async () => {
    directory = await tinyModel();
    backend = await startOn(directory.path);
    wire = new Wire(backend.url);
    session = await wire.createSession();
  });
  after(async () => {
    await backend[Symbol.asyncDispose]();
    await directory[Symbol.asyncDispose]();
  });

  const createLoss = async (seqId: number) => {
    const body = { ...weighted(), session_id: session, custom_loss_seq_id: seqId };
    return wire.result(await wire.post('create_custom_loss', body));
  };

  /** A cross-entropy request that names a custom loss instead. */
  async function send(modelId: string, seqId: number, lossId: string, isForwardOnly = false) {
    const plain = encodeForwardBackwardRequest(forwardBackward(modelId, seqId, { isForwardOnly }));
    const message = pb.ForwardBackwardRequestSchema;
    const bytes = toBinary(message, {
      ...fromBinary(message, plain),
      lossFn: 'custom',
      lossFnConfigV2: {
        loss_id: create(pb.LossConfigValueSchema, { value: { case: 'text', value: lossId } }),
      },
    });
    const response = await wire.fetch('/api/v1/forward_backward', {
      method: 'POST',
      headers: { 'content-type': protobufType },
      body: bytes,
    });
    return (await response.json()) as Record<string, unknown>;
  }

  it('a custom loss trains as the loss of the API that it repeats, and returns its metrics', async () => {
    const { loss_id: lossId } = await createLoss(0);
    const [mine, theirs] = [await wire.createModel(session, 0), await wire.createModel(session, 1)];
    const custom = await wire.evaluation(await send(mine, 1, String(lossId)));
    const builtin = await wire.evaluation(
      await wire.sendForwardBackward(forwardBackward(theirs, 1)),
    );
    const difference = custom.metrics['loss:sum']! - builtin.metrics['loss:sum']!;
    assert(Math.abs(difference) < 1e-4, `the losses differ by ${difference}`);
    assert.equal(custom.metrics['custom/weight:sum'], 6);
    assert.equal(custom.metrics['custom/weight:mean'], 3);

    const norms = await Promise.all(
      [mine, theirs].map(async (model) => {
        const { metrics } = await wire.result(await wire.optimStep(model, 2));
        return (metrics as Record<string, number>)['grad_norm:mean']!;
      }),
    );
    assert(norms[1]! > 0 && Math.abs(norms[0]! / norms[1]! - 1) < 1e-4, norms.join());
    const only = await wire.evaluation(await send(mine, 3, String(lossId), true));
    assert(only.metrics['loss:sum']! < custom.metrics['loss:sum']!);
  });

  it('a resent custom loss has the id of the first', async () => {
    assert.deepEqual(await createLoss(5), await createLoss(5));
  });

  it('a custom loss that uses what is not served is refused when it is created', async () => {
    const body = customLossBody((trace, logprobs) => {
      trace.returns(trace.call('torch.linalg.norm', logprobs));
    });
    const asked = { ...body, session_id: session, custom_loss_seq_id: 9 };
    const { error, category } = await wire.result(await wire.post('create_custom_loss', asked));
    assert.match(String(error), /custom loss "mine": n1: torch\.linalg\.norm is not served/);
    assert.equal(category, 'user');
  });

  it('a custom loss of another session, or none, is refused without losing the place of the request', async () => {
    const model = await wire.createModel(session, 7);
    const other = await wire.result(await send(model, 1, 'other:loss:0'));
    assert.match(String(other['error']), /"other:loss:0" is unknown in this session/);
    await wire.result(await wire.optimStep(model, 2));
  });
});

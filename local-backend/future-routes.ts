import {
  CancelFutureRequest,
  RetrieveFutureRequest,
  RetrieveFuturesRequest,
} from '../shared/tinker/sampling-api.js';
import { protobufType } from '../shared/tinker/codec.js';
import type { FutureStore } from './futures.js';
import { jsonReply, readJson, type Route } from './http-api.js';
import { type OperationResult, resultReply } from './operation-result.js';

/**
 * The routes that poll one future or all futures of a sampling client, and cancel one. When nothing has settled they answer after
 * `pollMs` (clients poll again at once, so it must not be short). A failed future has status 200 and its error, so
 * that clients report it and do not retry.
 */
export function futureRoutes(
  futures: FutureStore<OperationResult>,
  samplers: { clientOf(samplingSessionId: string, clone: number): string },
  pollMs: number,
): Route[] {
  return [
    {
      method: 'POST',
      path: '/api/v1/retrieve_future',
      access: 'sampling', // safe, since ids are unguessable
      async handle(request) {
        const { request_id: id } = await readJson(request, RetrieveFutureRequest);
        const outcome = await futures.wait(id, pollMs, request.signal);
        if (outcome === undefined) {
          return jsonReply(200, { type: 'try_again', request_id: id, queue_state: 'active' });
        }
        if (!outcome.isOk) {
          return jsonReply(200, { error: outcome.error, category: outcome.category });
        }
        const takesProtobuf = request.headers.accept?.includes(protobufType) ?? false;
        return resultReply(outcome.value, takesProtobuf);
      },
    },
    {
      method: 'POST',
      path: '/api/v1/cancel_future',
      access: 'sampling',
      async handle(request) {
        futures.cancel((await readJson(request, CancelFutureRequest)).request_id);
        return { status: 204, headers: {}, body: '' };
      },
    },
    {
      method: 'POST',
      path: '/api/v1/retrieve_futures',
      access: 'sampling',
      async handle(request) {
        const body = await readJson(request, RetrieveFuturesRequest);
        const { sampling_session_id: session, cloned_sampler_id: clone } = body.target;
        const owner = samplers.clientOf(session, clone);
        futures.drop(owner, body.retrieved_request_ids);
        const waitMs = Math.min((body.timeout ?? Infinity) * 1000, pollMs);
        const settled = await futures.settledOf(owner, body.prev_cursor, waitMs, request.signal);
        return jsonReply(200, {
          completions: settled.futures.map(({ id, isOk }) => ({
            state: isOk ? 'finished' : 'failed',
            request_id: id,
          })),
          cursor: settled.cursor,
        });
      },
    },
  ];
}

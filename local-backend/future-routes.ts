import { protobufType } from '../shared/tinker/codec.js';
import { RetrieveFutureRequest } from '../shared/tinker/api.js';
import type { FutureStore } from './futures.js';
import { jsonReply, readJson, type Route } from './http-api.js';
import { encodeResult, type OperationResult } from './operation-result.js';

/**
 * Polling. A pending future is answered after `pollMs` (clients poll again at once, so it must not
 * be short); a failed one with status 200 and its error, which clients report instead of retrying.
 */
export function futureRoutes(futures: FutureStore<OperationResult>, pollMs: number): Route[] {
  return [
    {
      method: 'POST',
      path: '/api/v1/retrieve_future',
      access: 'sampling', // the id, which cannot be guessed, says whose it is
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
        const { type, body } = encodeResult(outcome.value, takesProtobuf);
        return { status: 200, headers: { 'content-type': type }, body };
      },
    },
  ];
}

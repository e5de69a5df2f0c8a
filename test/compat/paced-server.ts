import { once } from 'node:events';
import { Agent, createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import pLimit from 'p-limit';
import { createRandom } from '../../shared/base/random.js';
import type { DrawSeconds } from '../../tools/simulate/trace.js';

/** How fast the server seems to be. */
export interface Pace {
  readonly slots: number; // answers that are sampled at once; others wait
  readonly answerSeconds: DrawSeconds;
  readonly stepSeconds: number; // of an optimizer step; steps follow one another
}

export interface PacedServer extends AsyncDisposable {
  readonly url: string;
}

/**
 * A proxy that gives a fast server of the Tinker API the pace of a slow one, so that two training loops can be compared
 * where sampling and training do not share processors. Everything is computed by the server behind it; the acceptance of
 * a sampling request or of an optimizer step, which a client awaits before it asks for the result, is held until its
 * time has passed.
 *
 * @param target address of the server behind it.
 */
export async function startPacedServer(target: string, pace: Pace): Promise<PacedServer> {
  const random = createRandom('paced server');
  const agent = new Agent({ keepAlive: true });
  const sampling = pLimit(pace.slots);
  const training = pLimit(1);

  const held = async (path: string | undefined, body: Buffer): Promise<void> => {
    if (path === '/api/v1/asample') {
      const asked = JSON.parse(body.toString()) as {
        readonly num_samples?: number;
        readonly sampling_params: { readonly max_tokens?: number };
      };
      // One token, as our canary asks for, comes at once.
      const count = asked.sampling_params.max_tokens === 1 ? 0 : (asked.num_samples ?? 1);
      const answer = () => sampling(() => sleep(1_000 * pace.answerSeconds(random)));
      await Promise.all(Array.from({ length: count }, answer));
    } else if (path === '/api/v1/optim_step') {
      await training(() => sleep(1_000 * pace.stepSeconds));
    }
  };
  const pass = async (asked: IncomingMessage, answered: ServerResponse): Promise<void> => {
    const body = await buffer(asked);
    const { method, url, headers } = asked;
    const onward = request(new URL(url!, target), { method, headers, agent });
    onward.end(body);
    const both = await Promise.all([once(onward, 'response'), held(url, body)]);
    const [[response]] = both as [[IncomingMessage], unknown];
    answered.writeHead(response.statusCode!, response.headers);
    response.pipe(answered);
  };
  const server = createServer((asked, answered) => {
    pass(asked, answered).catch(() => answered.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.close();
      server.closeAllConnections();
      agent.destroy();
      await once(server, 'close');
    },
  };
}

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { register } from 'prom-client';
import {
  patienceOf,
  type RecoveryOptions,
  type SessionBody,
  withRecovery,
} from '../../../learner/session/recovery.js';
import { freePort } from '../../../cli/processes/free-port.js';
import { StepDamaged } from '../../../learner/audit/damage.js';
import { BadRequest, RunLost } from '../../../shared/tinker/errors.js';
import type { Checkpoint } from '../../../shared/wire/ledger.js';
import { silent } from '../../support/log.js';
import { RecordingProxy } from '../../support/recording-proxy.js';
import { gate, never, until } from '../../support/waiting.js';
import { apiKey, modelName, startOn, tinyModel } from '../../local-backend/running-backend.js';

const failure = { operation: 'o', url: 'u', detail: 'not found' };
const adam = {
  learningRate: 1e-3,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0,
  gradClipNorm: 0,
};

/** Runs sessions as the leading learner, with their own backend and without pauses. */
async function recovering<Result>(
  session: SessionBody<Result>,
  over: Partial<RecoveryOptions> = {},
): Promise<Result> {
  await using model = await tinyModel(1);
  await using backend = await startOn(model.path);
  return await withRecovery(
    {
      backendUrl: backend.url,
      apiKey,
      startPatienceSeconds: 10,
      log: silent,
      stop: never,
      signal: never,
      leadership: { signal: never, confirm: () => Promise.resolve() },
      progress: () => Promise.resolve(undefined),
      pause: () => Promise.resolve(),
      ...over,
    },
    session,
  );
}

/** Returns the error of a session whose request the backend refused. */
async function refusedRequest(isLeader: boolean): Promise<unknown> {
  const replaced = new AbortController();
  const leadership = {
    signal: replaced.signal,
    confirm: () => {
      if (!isLeader) replaced.abort(new Error('another learner leads run r now'));
      return isLeader ? Promise.resolve() : Promise.reject(new Error('replaced'));
    },
  };
  const refused = () => Promise.reject(new BadRequest(failure));
  return await recovering(refused, { leadership }).catch((caught: unknown) => caught);
}

describe('a request that the backend refuses', () => {
  it('a refused request is a user error while the learner leads', async () => {
    const caught = await refusedRequest(true);
    assert.match(String(caught), /UserError: the backend refused a training request/);
  });

  it('a refused request is reported as lost leadership if another learner leads', async () => {
    const caught = await refusedRequest(false);
    assert.equal(String(caught), 'Error: another learner leads run r now');
  });
});

describe('the time that a session waits for its backend', () => {
  it('a session after a failure waits ten minutes, or as long as the first one if that is longer', () => {
    assert.deepEqual(
      [patienceOf(0, 30), patienceOf(1, 30), patienceOf(0, 3_600), patienceOf(5, 3_600)],
      [30, 600, 3_600, 3_600],
    );
  });
});

describe('a learner that is stopped while its backend is away', () => {
  it('a stopped learner does not wait for the backend as long as a running one', async () => {
    const stop = new AbortController();
    const reason = new Error('stopped');
    const waiting = recovering(() => assert.fail('there is no backend'), {
      backendUrl: `http://127.0.0.1:${await freePort()}`,
      startPatienceSeconds: 3_600,
      stop: stop.signal,
    });
    stop.abort(reason);
    await assert.rejects(waiting, reason);
  });

  it('a stopped learner still uses a backend that answers', async () => {
    const stop = new AbortController();
    const saved = recovering(() => Promise.resolve('saved'), {
      stop: stop.signal,
      pause: (ms, signal) => sleep(ms, undefined, { signal }),
    });
    stop.abort();
    assert.equal(await saved, 'saved');
  });
});

describe('a session that fails', () => {
  it('a failed session ends its backend calls, and settles its writes before the next session', async () => {
    const order: string[] = [];
    const release = gate();
    const log = pino({}, { write: (line) => order.push(messageOf(line)) });
    let sessions = 0;
    await using model = await tinyModel(1);
    await using backend = await startOn(model.path);
    await using proxy = await RecordingProxy.before(backend.url);
    proxy.hold('optim_step');

    const recovered = recovering(
      async (client, work) => {
        if (++sessions === 2) {
          order.push('second session');
          return;
        }
        const run = await client.createLoraModel({ baseModel: modelName, rank: 4 });
        const write = async () => {
          await run.optimStep(adam).catch(() => order.push('call ended'));
          await release.opened;
          order.push('first write');
          await work.track(setImmediate().then(() => order.push('second write')));
        };
        void work.track(write());
        await until(() => proxy.operations.includes('optim_step'));
        throw new RunLost(failure);
      },
      { backendUrl: proxy.url, log, pause: () => Promise.resolve(void order.push('pause')) },
    );
    await until(() => order.includes('call ended'));
    await setImmediate();
    release.open();
    await recovered;
    const expected = [failedMessage, 'call ended', 'first write', 'second write', 'pause'];
    assert.deepEqual(
      order.filter((entry) => expected.includes(entry) || entry === 'second session'),
      [...expected, 'second session'],
    );
  });

  it('a session fails with its first failure, which also ends its pending backend call', async () => {
    let sessions = 0;
    await using model = await tinyModel(1);
    await using backend = await startOn(model.path);
    await using proxy = await RecordingProxy.before(backend.url);
    proxy.hold('optim_step');
    const result = await recovering(
      async (client, work) => {
        if (++sessions === 2) return 'recovered';
        const run = await client.createLoraModel({ baseModel: modelName, rank: 4 });
        const step = run.optimStep(adam);
        await until(() => proxy.operations.includes('optim_step'));
        work.track(Promise.reject(new RunLost(failure))).catch(() => undefined);
        await step;
        return 'continued without a connection';
      },
      { backendUrl: proxy.url },
    );
    assert.equal(result, 'recovered');
  });
});

describe('the count of recoveries', () => {
  it('each kind of recovery is exported as 0 before its first, since Prometheus sees no increase in a first sample', async () => {
    register.resetMetrics();
    const kinds = await recovering(async () => {
      const metric = await register.getSingleMetric('rl_learner_recoveries_total')!.get();
      return metric.values.map(({ labels, value }) => [labels['reason'], value]);
    });
    const all = ['RunLost', 'SequenceConflict', 'Unavailable', 'StepDamaged'];
    assert.deepEqual(
      kinds,
      all.map((reason) => [reason, 0]),
    );
  });
});

describe('a run whose steps are damaged by false logprobs', () => {
  it('recovery pauses longer after each damaged step without a checkpoint, and never gives up', async () => {
    const pauses: number[] = [];
    const steps = [0, 0, 0, 0, 0, 0, 0, 0, 7]; // of the newest checkpoint at the end of each session
    const result = await recovering(
      () => {
        if (pauses.length === steps.length) return Promise.resolve('done');
        return Promise.reject(new StepDamaged(8, ['liar']));
      },
      {
        progress: () => Promise.resolve({ step: steps[pauses.length] } as Checkpoint),
        pause: (ms) => Promise.resolve(void pauses.push(ms / 1_000)),
      },
    );
    assert.equal(result, 'done');
    assert.deepEqual(pauses, [1, 2, 4, 8, 16, 30, 30, 30, 1]);
  });
});

const failedMessage = 'session failed, waiting for its tasks to settle';

function messageOf(line: string): string {
  return (JSON.parse(line) as { readonly msg: string }).msg;
}

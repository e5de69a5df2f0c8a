import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Link } from '../../../shared/broker/link.js';
import { runNames } from '../../../shared/broker/names.js';
import { Outages } from '../../../shared/broker/retry.js';
import { RunConfigStore } from '../../../shared/run/run-config-store.js';
import { encode } from '../../../shared/wire/codec.js';
import { RunConfig } from '../../../shared/run/run-config.js';
import { silent } from '../../support/log.js';
import { runConfig } from '../../support/messages.js';

describe('waiting for the run configuration', () => {
  it('the store requests no message before the bucket has one, because nats-server 2.9.10 would crash', async () => {
    const asked: string[] = [];
    let looks = 0;
    const bucket = {
      get: () => {
        asked.push('message');
        return Promise.resolve({
          operation: 'PUT',
          revision: 1,
          value: encode(RunConfig, runConfig()),
        });
      },
    };
    const { signal } = new AbortController();
    const link = {
      names: runNames('test'),
      jsm: {
        streams: {
          info: () => {
            asked.push('stream');
            return Promise.resolve({ state: { last_seq: looks++ } });
          },
        },
      },
      js: { views: { kv: () => Promise.resolve(bucket) } },
      log: silent,
      signal,
      outages: new Outages(),
    } as unknown as Link;
    assert.deepEqual(await new RunConfigStore({ link }).wait(signal), runConfig());
    assert.deepEqual(asked, ['stream', 'stream', 'message']);
  });
});

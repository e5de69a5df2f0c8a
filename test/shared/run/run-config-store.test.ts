import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { z } from 'zod';
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

  it('a configuration of another version of the program is refused in a sentence', async () => {
    const other = z.looseObject({ v: z.int() });
    const value = encode(other, { ...runConfig(), v: 3 });
    const bucket = { get: () => Promise.resolve({ operation: 'PUT', revision: 1, value }) };
    const link = {
      names: runNames('test'),
      jsm: { streams: { info: () => Promise.resolve({ state: { last_seq: 1 } }) } },
      js: { views: { kv: () => Promise.resolve(bucket) } },
      log: silent,
      signal: new AbortController().signal,
      outages: new Outages(),
    } as unknown as Link;
    await assert.rejects(new RunConfigStore({ link }).get(), {
      name: 'UserError',
      message: /configuration of run test cannot be read .*another version of offbeat\?$/,
    });
  });
});

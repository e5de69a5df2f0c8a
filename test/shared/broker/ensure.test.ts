import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { NatsError, RetentionPolicy, StorageType } from 'nats';
import { ensureStream } from '../../../shared/broker/ensure.js';
import type { Link } from '../../../shared/broker/link.js';
import { runNames } from '../../../shared/broker/names.js';
import { Outages } from '../../../shared/broker/retry.js';
import type { StreamSettings } from '../../../shared/broker/run-layout.js';
import { silent } from '../../support/log.js';
import { never } from '../../support/waiting.js';

const settings = {
  ...{ name: 'KV_actors_r', subjects: ['$KV.actors_r.>'], storage: StorageType.File },
  ...{ retention: RetentionPolicy.Limits, max_msgs: 8 },
} as unknown as StreamSettings;

function failure(errorCode: number, description: string): NatsError {
  const error = new NatsError(description, '400');
  error.api_error = { code: 400, err_code: errorCode, description };
  return error;
}

/** A server on which another learner creates the stream between the look and the creation, if `isMade`. */
function linkTo(isMade: boolean): { link: Link; asked: string[] } {
  const asked: string[] = [];
  const streams = {
    info: () => {
      const isThere = isMade && asked.includes('add');
      asked.push('info');
      if (!isThere) return Promise.reject(failure(10_059, 'stream not found'));
      return Promise.resolve({ config: settings, state: { messages: 0 } });
    },
    add: () => {
      asked.push('add');
      return Promise.reject(failure(10_065, 'subjects overlap with an existing stream'));
    },
  };
  const link = {
    ...{ names: runNames('r'), jsm: { streams }, log: silent, signal: never },
    outages: new Outages(),
  };
  return { link: link as unknown as Link, asked };
}

describe('a stream that two learners create at the same time', () => {
  it('a stream that another learner has created meanwhile is used', async () => {
    const { link, asked } = linkTo(true);
    assert.equal((await ensureStream(link, settings)).config, settings);
    assert.deepEqual(asked, ['info', 'add', 'info', 'info']);
  });

  it('a stream whose subjects belong to another one is refused with the remedy', async () => {
    await assert.rejects(ensureStream(linkTo(false).link, settings), {
      name: 'UserError',
      message: /subjects overlap .*; choose another run name than r, or delete that run/,
    });
  });
});

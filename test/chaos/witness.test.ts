import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encode } from '../../shared/wire/codec.js';
import { RunEvent } from '../../shared/wire/run-event.js';
import type { Exchange } from '../support/recording-proxy.js';
import { Witness } from './witness.js';

describe('the witness of what the backend did', () => {
  function heard() {
    const witness = new Witness('test', 4);
    const exchange = (operation: string, body: object, answer: object, status = 200): Exchange => ({
      ...{ operation, isJson: true, status, answerIsJson: true },
      ...{ body: Buffer.from(JSON.stringify(body)), answer: Buffer.from(JSON.stringify(answer)) },
    });
    const ask = () => {
      const body = { model_id: 'a', seq_id: 1, path: 'state-000001' };
      witness.hearExchange(exchange('save_weights', body, { request_id: 'r1' }, 202));
    };
    const retrieve = (answer: object, status?: number) => {
      witness.hearExchange(exchange('retrieve_future', { request_id: 'r1' }, answer, status));
    };
    return { witness, ask, retrieve };
  }

  it('the witness counts an operation when it is answered, not when it is requested', () => {
    const { witness, ask, retrieve } = heard();
    ask();
    assert.deepEqual(witness.operations, []);
    retrieve({ type: 'try_again', request_id: 'r1' });
    assert.deepEqual(witness.operations, []);
    retrieve({ path: 'tinker://a/weights/state-000001' });
    retrieve({ path: 'tinker://a/weights/state-000001' });
    assert.deepEqual(witness.operations, [
      { model: 'a', seq: 1, kind: 'state', name: 'state-000001' },
    ]);
  });

  it('the witness counts no operation that failed, was refused or was not requested', () => {
    const { witness, ask, retrieve } = heard();
    retrieve({ path: 'tinker://a/weights/state-000001' });
    ask();
    retrieve({ error: 'out of memory', category: 'server' });
    retrieve({ detail: 'unavailable' }, 503);
    assert.deepEqual(witness.operations, []);
  });

  it('the witness records messages and ignores garbage', () => {
    const { witness } = heard();
    const event = { v: 1, at: 5, kind: 'step', step: 1, version: 1, metrics: {} } as const;
    const data = Buffer.from(encode(RunEvent, event));
    const subject = 'offbeat.test.events.step';
    for (const id of ['one', 'one', 'two']) {
      witness.hearPublished({ subject, headers: `NATS/1.0\r\nNats-Msg-Id: ${id}\r\n`, data });
    }
    witness.hearPublished({ subject: 'offbeat.test.rollouts.liar', headers: '', data });
    assert.deepEqual([witness.steps, witness.delivered.length], [2, 0]);
  });
});

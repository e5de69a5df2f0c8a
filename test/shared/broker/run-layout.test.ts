import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { nanos } from 'nats';
import { differences } from '../../../shared/broker/ensure.js';
import { runNames, type Source } from '../../../shared/broker/names.js';
import {
  consumerSettings,
  countsDeliveries,
  streamSettings,
} from '../../../shared/broker/run-layout.js';

const names = runNames('test');
const limits = { trainTickets: 48, evalTickets: 16 };
const streams = streamSettings(names, limits);
const stream = (name: string) => streams.find((settings) => settings.name === name)!;

describe('the streams of a run', () => {
  it('hold exactly the tickets that the capacity law allows', () => {
    assert.equal(stream('TICKETS_test').max_msgs, 64);
  });

  it('have room for every outstanding group, sampled or scored', () => {
    assert(stream('ROLLOUTS_test').max_msgs >= 64);
    assert(stream('SCORED_test').max_msgs >= 64);
  });

  it('give each actor a share of what actors write, and many can use up theirs', () => {
    for (const name of ['ROLLOUTS_test', 'UPLOADS_test']) {
      const { max_msgs, max_msgs_per_subject: share, discard_new_per_subject } = stream(name);
      assert(share! > 0 && max_msgs >= 16 * share!, name);
      assert.equal(discard_new_per_subject, true);
    }
    assert(stream('DEAD_test').max_msgs >= 16 * stream('DEAD_test').max_msgs_per_subject!);
  });

  it('let an actor upload four of the largest groups, whatever size these have', () => {
    for (const largestGroupBytes of [1, 4e6, 1e8]) {
      const uploads = streamSettings(names, { ...limits, largestGroupBytes }, 60_000).find(
        ({ name }) => name === 'UPLOADS_test',
      )!;
      assert(uploads.max_msgs_per_subject! * 60_000 >= 4 * largestGroupBytes);
      assert(uploads.max_msg_size! > 60_000 && uploads.max_msg_size! < 65_536);
    }
  });

  it('are all bounded and all in files', () => {
    for (const { name, max_msgs, storage } of streams) {
      assert(max_msgs > 0 && max_msgs < 1e6, name);
      assert.equal(storage, 'file', name);
    }
  });

  it('refuse what a full queue cannot take, but let history forget', () => {
    const discards = ['TICKETS', 'ROLLOUTS', 'SCORED', 'DEAD', 'EVENTS'].map(
      (kind) => stream(`${kind}_test`).discard,
    );
    assert.deepEqual(discards, ['new', 'new', 'new', 'old', 'old']);
  });
});

describe('the consumers of a run', () => {
  it('deliver again after 30 seconds what a holder or a connection took along', () => {
    for (const source of Object.keys(countsDeliveries) as Source[]) {
      assert.equal(consumerSettings(names, source, limits).ack_wait, nanos(30_000), source);
    }
  });

  it('let as much be under way as their stream holds', () => {
    for (const source of Object.keys(countsDeliveries) as Source[]) {
      const { max_ack_pending } = consumerSettings(names, source, limits);
      assert.equal(max_ack_pending, stream(names.consumer(source).stream).max_msgs, source);
    }
  });

  it('never let the server give a message up by itself', () => {
    assert.equal(consumerSettings(names, 'rollouts', limits).max_deliver, -1);
  });
});

describe('settings as the server has them', () => {
  const asked = { max_msgs: 12, subjects: ['a.*'] };

  it('agree when every setting asked for came back, whatever else there is', () => {
    assert.deepEqual(differences(asked, { ...asked, sealed: false }), []);
  });

  it('are named one by one where they differ', () => {
    assert.deepEqual(differences(asked, { max_msgs: 13, subjects: ['b'] }), [
      'max_msgs is 13, not 12',
      'subjects is ["b"], not ["a.*"]',
    ]);
  });

  it('are named when the server dropped them', () => {
    assert.deepEqual(differences(asked, { subjects: ['a.*'] }), [
      'max_msgs is unknown to the server, not 12',
    ]);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { nanos } from 'nats';
import { differences } from '../../../shared/broker/ensure.js';
import { runNames, type Source } from '../../../shared/broker/names.js';
import {
  consumerSettings,
  countsDeliveries,
  groupsAwaitingCheckpoint,
  streamSettings,
} from '../../../shared/broker/run-layout.js';

const names = runNames('test');
const limits = { trainTickets: 48, evalTickets: 16 };
const streams = streamSettings(names, limits);
const stream = (name: string) => streams.find((settings) => settings.name === name)!;

describe('the streams of a run', () => {
  it('the ticket streams hold exactly as many tickets as the capacity law allows', () => {
    assert.equal(stream('TICKETS_test').max_msgs, 64);
  });

  it('the streams of a run have room for every outstanding group, sampled or scored', () => {
    assert(stream('ROLLOUTS_test').max_msgs >= 64);
    assert(stream('SCORED_test').max_msgs >= 64);
  });

  it('the queue of scored groups has room for those without variance that are skipped in steps of large batches', () => {
    const large = streamSettings(names, { ...limits, trainTickets: 1_536 });
    const room = (all: typeof streams) => all.find(({ name }) => name === 'SCORED_test')!.max_msgs;
    assert(room(streams) >= 32_768 + 2 * 64);
    assert(room(large) >= 512 * 1_536);
  });

  it('the streams of a run give each actor a share, and have room for many full shares', () => {
    for (const name of ['ROLLOUTS_test', 'UPLOADS_test']) {
      const { max_msgs, max_msgs_per_subject: share, discard_new_per_subject } = stream(name);
      assert(share! > 0 && max_msgs >= 16 * share!, name);
      assert.equal(discard_new_per_subject, true);
    }
    assert(stream('DEAD_test').max_msgs >= 16 * stream('DEAD_test').max_msgs_per_subject!);
  });

  it('the streams of a run let an actor upload four of the largest groups, whatever their size', () => {
    for (const largestGroupBytes of [1, 4e6, 1e8]) {
      const uploads = streamSettings(names, { ...limits, largestGroupBytes }, 60_000).find(
        ({ name }) => name === 'UPLOADS_test',
      )!;
      assert(uploads.max_msgs_per_subject! * 60_000 >= 4 * largestGroupBytes);
      assert(uploads.max_msg_size! > 60_000 && uploads.max_msg_size! < 65_536);
    }
  });

  it('the bucket of large groups has room for those of 4 MiB until so many wait that a checkpoint is made early', () => {
    const entries = 1 + (4 * 2 ** 20) / (128 * 1_024);
    assert(stream('OBJ_bodies_test').max_msgs / entries >= groupsAwaitingCheckpoint.least / 2);
  });

  it('the streams of a run are all bounded and stored in files', () => {
    for (const { name, max_msgs, storage } of streams) {
      assert(max_msgs > 0 && max_msgs < 1e6, name);
      assert.equal(storage, 'file', name);
    }
  });

  it('the work queues refuse messages when full, while the history drops its oldest', () => {
    const discards = ['TICKETS', 'ROLLOUTS', 'SCORED', 'DEAD', 'EVENTS'].map(
      (kind) => stream(`${kind}_test`).discard,
    );
    assert.deepEqual(discards, ['new', 'new', 'new', 'old', 'old']);
  });
});

describe('the consumers of a run', () => {
  it('the consumers of a run redeliver unacknowledged messages after 30 seconds', () => {
    for (const source of Object.keys(countsDeliveries) as Source[]) {
      assert.equal(consumerSettings(names, source, limits).ack_wait, nanos(30_000), source);
    }
  });

  it('the consumers of a run allow as many unacknowledged messages as their stream holds', () => {
    for (const source of Object.keys(countsDeliveries) as Source[]) {
      const { max_ack_pending } = consumerSettings(names, source, limits);
      assert.equal(max_ack_pending, stream(names.consumer(source).stream).max_msgs, source);
    }
  });

  it('the consumers of a run never let the server give up a message', () => {
    assert.equal(consumerSettings(names, 'rollouts', limits).max_deliver, -1);
  });
});

describe('the settings that the server reports', () => {
  const asked = { max_msgs: 12, subjects: ['a.*'] };

  it('reported settings agree if every requested setting is among them, whatever else the server adds', () => {
    assert.deepEqual(differences(asked, { ...asked, sealed: false }), []);
  });

  it('reported settings that differ are named one by one', () => {
    assert.deepEqual(differences(asked, { max_msgs: 13, subjects: ['b'] }), [
      'max_msgs is 13, not 12',
      'subjects is ["b"], not ["a.*"]',
    ]);
  });

  it('settings that the server dropped are named', () => {
    assert.deepEqual(differences(asked, { subjects: ['a.*'] }), [
      'max_msgs is unknown to the server, not 12',
    ]);
  });
});

import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import {
  breakageReason,
  BrokenPolicyWatch,
} from '../../../learner/giving-up/broken-policy-watch.js';
import { GroupBook } from '../../../learner/groups/group-book.js';
import { UserError } from '../../../shared/errors.js';

/** The version that this life of the run began with; it has published one more. */
const first = 5;

describe('a watch for a broken policy, of batches of ten groups', () => {
  let book: GroupBook<string>;
  let watch: BrokenPolicyWatch;
  /** Issues so many tickets. */
  const issue = (count: number) => {
    for (let i = 0; i < count; i += 1) book.issue(first, first);
  };
  /** So many tickets, the oldest first, come back without a group, and each is replaced. */
  const die = (count: number, version = first + 1, but: readonly number[] = []) => {
    for (let i = 0; i < count; i += 1) {
      const out = book.entries().filter(({ state }) => state === 'issued');
      const { order } = out.find(({ order }) => !but.includes(order))!;
      book.die(order);
      watch.died(version, book);
      issue(1);
    }
  };

  beforeEach(() => {
    book = new GroupBook();
    watch = new BrokenPolicyWatch(10, first);
    issue(4);
  });

  it('is over when a batch has come back so, and all that was out by then', () => {
    die(9);
    assert(!watch.signal.aborted);
    die(1); // three more are out, which may be groups yet
    assert(!watch.signal.aborted);
    die(2);
    assert(!watch.signal.aborted);
    die(1);
    assert(watch.signal.aborted);
    assert.deepEqual(watch.breakage, { groups: 13, version: 6 });
  });

  it('begins anew when a group comes', () => {
    die(9);
    book.arrive(book.entries()[0]!.order, 'a group', 9);
    watch.arrived();
    issue(1);
    die(12);
    assert(!watch.signal.aborted);
    die(1);
    assert(watch.signal.aborted);
  });

  it('waits for an actor that still samples, however fast another one fails', () => {
    die(100, first + 1, [2]);
    assert(!watch.signal.aborted);
    book.refuseAsStale(2); // what it has is too old, and its ticket is issued once more
    die(1);
    assert(!watch.signal.aborted);
    book.reissue(2, first, first);
    die(1, first + 1, [2]);
    assert(!watch.signal.aborted);
    book.die(2);
    watch.died(first + 1, book);
    assert(watch.signal.aborted);
  });

  it('waits for no group that is here already, and lacks others to be trained with', () => {
    book.arrive(0, 'a group', 9);
    watch.arrived();
    die(13);
    assert(watch.signal.aborted);
  });

  it('takes no notice of what earlier lives of the run have published', () => {
    die(100, first - 1);
    assert(!watch.signal.aborted);
    assert.equal(watch.breakage.groups, 0);
  });

  it('takes more than a few, however small a batch is', () => {
    watch = new BrokenPolicyWatch(1, first);
    die(7);
    assert(!watch.signal.aborted);
    die(4);
    assert(watch.signal.aborted);
  });

  it('tells what ended it, whatever comes behind', () => {
    die(20);
    watch.arrived();
    assert.equal(watch.breakage.groups, 13);
  });
});

describe('what a broken policy is said to be', () => {
  const breakage = { groups: 13, version: 6 };

  it('is a divergence once something was trained', () => {
    assert.match(breakageReason(breakage, true), /last 13 groups .* version 6 .* not finite$/);
  });

  it('is the fault of the model or of the actors before that', () => {
    assert.throws(() => breakageReason(breakage, false), UserError);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { SlotWatch } from '../../../actor/sampler/slot-watch.js';

describe('the watch of a server with slots for two adapters', () => {
  const watch = () => new SlotWatch(2, (name) => name.startsWith('own'));

  it('the slot watch tells once of adapters that are too many, and names those of others', () => {
    const slots = watch();
    assert.equal(slots.look(['own-1', 'own-2']), undefined);
    assert.match(
      slots.look(['own-1', 'a', 'own-2']) ?? '',
      /^it has 3 adapters and slots for 2, .*; unload those of others \(a\), or divide/,
    );
    assert.equal(slots.look(['own-2', 'own-1', 'a']), undefined); // the same ones
    assert.match(slots.look(['own-1', 'own-2', 'b']) ?? '', /others \(b\)/);
  });

  it('the slot watch tells again of those that came after the others were gone', () => {
    const slots = watch();
    assert(slots.look(['own-1', 'own-2', 'a']) !== undefined);
    assert.equal(slots.look(['own-1', 'own-2']), undefined);
    assert(slots.look(['own-1', 'own-2', 'a']) !== undefined);
  });

  it('the slot watch does not tell of those that were there when all of ours were proven', () => {
    const slots = watch();
    slots.restart(['own-1', 'own-2', 'a']);
    assert.equal(slots.look(['own-1', 'own-2', 'a']), undefined);
    assert(slots.look(['own-1', 'own-2', 'b']) !== undefined);
  });

  it('the slot watch knows nothing of a server that does not say its slots', () => {
    const slots = new SlotWatch(undefined, () => true);
    assert(!slots.isKnown);
    assert.equal(slots.look(['own-1', 'own-2', 'own-3', 'own-4']), undefined);
  });
});

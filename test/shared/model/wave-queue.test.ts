import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { takeWave, WaveQueue } from '../../../shared/model/wave-queue.js';

interface Item {
  readonly name: string;
}
const item = (name: string): Item => ({ name });
const sameLetter = (one: Item, wave: readonly Item[]) => one.name[0] === wave[0]!.name[0];

describe('a wave', () => {
  it('a wave takes the first item and those that may join it, in their order', () => {
    const [a1, b1, a2] = [item('a1'), item('b1'), item('a2')];
    assert.deepEqual(takeWave([a1, b1, a2], sameLetter), [a1, a2]);
  });

  it('a wave takes the first item even if no other may join', () => {
    const [a1, a2] = [item('a1'), item('a2')];
    assert.deepEqual(
      takeWave([a1, a2], () => false),
      [a1],
    );
  });

  it('a wave is empty if the queue is empty', () => {
    assert.deepEqual(takeWave([], sameLetter), []);
  });
});

describe('a queue sampled in waves', () => {
  /** Samples each item to its own name; refuses every wave that contains `bad`. */
  function recording(bad?: string) {
    const waves: string[] = [];
    const queue = new WaveQueue(sameLetter, (wave: readonly Item[]) => {
      const names = wave.map(({ name }) => name);
      waves.push(names.join(' '));
      if (bad !== undefined && names.includes(bad)) throw new Error(`${bad} is bad`);
      return Promise.resolve(names);
    });
    return { waves, queue };
  }

  it('a queue samples wave after wave and gives each item its own result', async () => {
    const { waves, queue } = recording();
    const results = ['a1', 'b1', 'a2'].map((name) => queue.add(item(name)));
    assert.equal(queue.depth, 3);
    void queue.serve();
    void queue.serve(); // changes nothing
    assert.deepEqual(await Promise.all(results), ['a1', 'b1', 'a2']);
    assert.deepEqual(waves, ['a1 a2', 'b1']);
    assert.equal(queue.depth, 0);
    const later = queue.add(item('a3'));
    await queue.serve();
    assert.equal(await later, 'a3');
  });

  it('a queue samples each item of a failed wave alone, so that one bad item fails alone', async () => {
    const { waves, queue } = recording('a2');
    const results = Promise.allSettled(['a1', 'a2', 'a3'].map((name) => queue.add(item(name))));
    await queue.serve();
    assert.deepEqual(
      (await results).map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled'],
    );
    assert.deepEqual(waves, ['a1 a2 a3', 'a1', 'a2', 'a3']);
  });

  it('a queue does not sample an item that was withdrawn while it waited', async () => {
    const { waves, queue } = recording();
    const [kept, withdrawn] = [item('a1'), item('a2')];
    const results = [kept, withdrawn].map((one) => queue.add(one));
    queue.withdraw(withdrawn, 'withdrawn');
    await queue.serve();
    queue.withdraw(kept, 'too late');
    assert.deepEqual(await Promise.all(results), ['a1', 'withdrawn']);
    assert.deepEqual(waves, ['a1']);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createRandom } from '../../../shared/random.js';
import { FlowModel } from '../support/flow-model.js';

describe('a learner that looks for lost tickets', () => {
  it('finds each that is in no queue, and none that is, whatever happens between its questions', async () => {
    let lost = 0;
    for (let seed = 0; seed < 200; seed += 1) {
      const model = new FlowModel(createRandom(`flow ${seed}`));
      for (let i = 0; i < 200; i += 1) {
        await model.move();
        const wrong = model.found.filter((id) => !model.lost.has(id));
        assert.deepEqual(wrong, [], `history ${seed}, move ${i}`);
      }
      await model.settle();
      assert.deepEqual(model.awaited, [], `history ${seed} waits in vain`);
      assert.deepEqual(model.found.toSorted(), [...model.lost].toSorted(), `history ${seed}`);
      lost += model.lost.size;
    }
    assert(lost > 200, `${lost} were lost in all`);
  });
});

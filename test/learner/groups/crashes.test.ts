import { describe, it } from 'node:test';
import { createRandom } from '../../../shared/base/random.js';
import { assertGoesOn, CrashModel } from '../support/crash-model.js';

describe('a run whose learner, actors and server may end at any moment', () => {
  it('can always go on: no ticket is lost between an acknowledgement and a repetition', async () => {
    for (let seed = 0; seed < 250; seed += 1) {
      const model = new CrashModel(createRandom(`crash ${seed}`));
      for (let i = 0; i < 200; i += 1) await model.move();
      await assertGoesOn(model, `history ${seed}`);
    }
  });
});

import { describe, it } from 'node:test';
import { createRandom } from '../../../shared/base/random.js';
import { assertTrainingContinues, CrashModel } from '../support/crash-model.js';

describe('a run whose learner, actors and server may crash at any moment', () => {
  it('a run can continue after any crashes: no ticket is lost between acknowledgement and repetition', async () => {
    for (let seed = 0; seed < 250; seed += 1) {
      const model = new CrashModel(createRandom(`crash ${seed}`));
      for (let i = 0; i < 200; i += 1) await model.move();
      await assertTrainingContinues(model, `history ${seed}`);
    }
  });

  it('after any crashes every token received is trained on, wasted for one reason or in flight', async () => {
    for (let seed = 0; seed < 120; seed += 1) {
      const model = new CrashModel(createRandom(`tokens ${seed}`));
      for (let i = 0; i < 200; i += 1) {
        await model.move();
        model.assertBalance();
      }
    }
  });
});

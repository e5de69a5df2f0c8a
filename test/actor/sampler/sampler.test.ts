import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { canShareWave, type PolicyChoice } from '../../../actor/sampler/sampler.js';

const choice = (version: number, adoptsNewer: boolean): PolicyChoice => ({ version, adoptsNewer });

describe('groups that may be sampled side by side', () => {
  it('are all that adopt newer versions, whichever version they begin with', () => {
    assert(canShareWave(choice(3, true), choice(4, true)));
  });

  it('are those that keep the same version', () => {
    assert(canShareWave(choice(3, false), choice(3, false)));
    assert(!canShareWave(choice(3, false), choice(4, false)));
  });

  it('are never one that adopts newer versions and one that keeps its own', () => {
    assert(!canShareWave(choice(3, true), choice(3, false)));
  });
});

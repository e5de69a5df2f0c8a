import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { canShareWave, type PolicyChoice } from '../../../actor/sampler/sampler.js';

const choice = (version: number, adoptsNewer: boolean): PolicyChoice => ({ version, adoptsNewer });

describe('groups that can share a wave', () => {
  it('a wave may contain all groups that adopt newer versions, whatever version they start with', () => {
    assert(canShareWave(choice(3, true), choice(4, true)));
  });

  it('a wave may contain groups that keep the same version', () => {
    assert(canShareWave(choice(3, false), choice(3, false)));
    assert(!canShareWave(choice(3, false), choice(4, false)));
  });

  it('a wave never mixes groups that adopt newer versions with groups that keep theirs', () => {
    assert(!canShareWave(choice(3, true), choice(3, false)));
  });
});

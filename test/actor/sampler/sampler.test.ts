import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { joinsWave, type WaveGroup } from '../../../actor/sampler/sampler.js';

const group = (version: number, adoptsNewer: boolean, count = 16): WaveGroup => ({
  policy: { version, adoptsNewer },
  request: { count },
});
const canShareWave = (a: WaveGroup, b: WaveGroup) => joinsWave(b, [a], Infinity);

describe('groups that can share a wave', () => {
  it('a wave may contain all groups that adopt newer versions, whatever version they start with', () => {
    assert(canShareWave(group(3, true), group(4, true)));
  });

  it('a wave may contain groups that keep the same version', () => {
    assert(canShareWave(group(3, false), group(3, false)));
    assert(!canShareWave(group(3, false), group(4, false)));
  });

  it('a wave never mixes groups that adopt newer versions with groups that keep theirs', () => {
    assert(!canShareWave(group(3, true), group(3, false)));
  });

  it('a wave has no more rows than allowed, and each group has as many as the largest', () => {
    const wave = [group(3, true), group(3, true)];
    assert(joinsWave(group(3, true), wave, 48));
    assert(!joinsWave(group(3, true), wave, 47));
    assert(!joinsWave(group(3, true, 17), wave, 48));
    assert(!joinsWave(group(3, true, 1), wave, 47));
  });
});

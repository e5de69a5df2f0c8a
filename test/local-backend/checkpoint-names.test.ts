import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { formatTinkerPath, nextAutomaticName } from '../../local-backend/checkpoint-names.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';

describe('checkpoint names', () => {
  it('count from 1 when none is given', () => {
    assert.equal(nextAutomaticName([]), 'checkpoint-0001');
    assert.equal(nextAutomaticName(['step-7']), 'checkpoint-0001');
  });

  it('go on above the highest in use, also past four digits', () => {
    assert.equal(nextAutomaticName(['checkpoint-0003', 'checkpoint-0001']), 'checkpoint-0004');
    assert.equal(nextAutomaticName(['checkpoint-9999']), 'checkpoint-10000');
  });

  it('make tinker paths that read back', () => {
    const path = { runId: 'run-1', kind: 'sampler_weights', name: 'v3' } as const;
    assert.deepEqual(parseTinkerPath(formatTinkerPath(path)), path);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { StatusConfig } from '../../../cli/status/status.js';
import { loadConfig } from '../../../shared/service/config.js';
import { complaintOf } from '../../support/complaint.js';

const load = (...argv: string[]) =>
  loadConfig(StatusConfig, 'offbeat-status', ['--run=r', ...argv], {});

describe('the flags of offbeat status', () => {
  it('the flags of offbeat status refuse a time between reports if there is only one', () => {
    assert.match(
      complaintOf(() => load('--every-seconds=5')),
      /--every-seconds .* is "5": without --watch there is one report; add it, or remove this/,
    );
    assert.equal(load('--watch', '--every-seconds=5').everySeconds, 5);
    assert.equal(load().watch, false);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { wrapped } from '../../../../shared/service/telemetry/print-error.js';

describe('an error printed on a terminal', () => {
  it('a printed error is unchanged if it fits', () => {
    assert.equal(wrapped('a port is taken\n  - another', 20), 'a port is taken\n  - another');
  });

  it('a printed error is broken after a clause, or else between two words, and indented', () => {
    assert.equal(
      wrapped('no server answers; start one here', 24),
      'no server answers;\n  start one here',
    );
    assert.equal(wrapped('one two three four', 10), 'one two\n  three\n  four');
    assert.equal(wrapped('  - one two three', 12), '  - one two\n    three');
  });

  it('a printed error keeps a command and an address whole', () => {
    assert.equal(
      wrapped('type `offbeat up --run a` now', 12),
      'type\n  `offbeat up --run a`\n  now',
    );
    assert.equal(wrapped('http://127.0.0.1:4222/a', 10), 'http://127.0.0.1:4222/a');
  });
});

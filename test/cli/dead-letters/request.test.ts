import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { loadRequest } from '../../../cli/dead-letters/command.js';
import { complaintOf } from '../../support/complaint.js';

const numbersOf = (...words: string[]) => loadRequest(words, {}).numbers;
const refusal = (...words: string[]) => complaintOf(() => loadRequest(words, {}));

describe('the words of offbeat dead-letters', () => {
  it('the numbers of letters may stand before, between and after the flags', () => {
    assert.deepEqual(numbersOf('replay', '3', '4', '--run=m'), [3, 4]);
    assert.deepEqual(numbersOf('replay', '--run', '7', '3', '--force', '4'), [3, 4]);
    assert.deepEqual(numbersOf('purge', '--json', '3', '--run', 'm'), [3]);
  });

  it('a word that is no number, a missing action and a mistyped one are each named', () => {
    assert.match(refusal('replay', 'abc', '--run=m'), /^abc is not the number of a letter/);
    assert.match(refusal('--run', 'x'), /^an action is missing; one of list, show, /);
    assert.match(refusal('lst', '--run=m'), /^unknown action lst; did you mean list\?$/);
  });
});

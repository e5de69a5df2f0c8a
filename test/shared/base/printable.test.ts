import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { printable, printableJson } from '../../../shared/base/printable.js';

describe('a text of others, printed', () => {
  it('shows escape codes instead of obeying them', () => {
    assert.equal(printable('a\x1b[2Jb\rc\x9bd\x7f'), 'a\\u001b[2Jb\\u000dc\\u009bd\\u007f');
  });

  it('stays on its line, in its direction, with every character to be seen', () => {
    assert.equal(printable('1\n2\u20283'), '1\\u000a2\\u20283');
    assert.equal(printable('a\u202eb\u200bc\u{e0041}'), 'a\\u202eb\\u200bc\\udb40\\udc41');
  });

  it('leaves every other text as it is', () => {
    const text = 'no such problem: "7 × 8", 问题, é, 🙂';
    assert.equal(printable(text), text);
  });

  it('means the same as JSON, and has no control character but its line breaks', () => {
    const binary = fc.string({ unit: 'binary' });
    fc.assert(
      fc.property(fc.dictionary(binary, fc.array(binary)), fc.nat(2), (value, indent) => {
        const json = printableJson(value, indent);
        assert.deepEqual(JSON.parse(json), JSON.parse(JSON.stringify(value)));
        assert.doesNotMatch(json.replaceAll('\n', ''), /[\p{Cc}\p{Cf}]/u);
      }),
    );
  });
});

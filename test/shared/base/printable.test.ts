import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { printable, printableJson } from '../../../shared/base/printable.js';

describe('a foreign text made printable', () => {
  it('a printable text shows escape codes as text', () => {
    assert.equal(printable('a\x1b[2Jb\rc\x9bd\x7f'), 'a\\u001b[2Jb\\u000dc\\u009bd\\u007f');
  });

  it('a printable text stays on its line and in its direction, with every character visible', () => {
    assert.equal(printable('1\n2\u20283'), '1\\u000a2\\u20283');
    assert.equal(printable('a\u202eb\u200bc\u{e0041}'), 'a\\u202eb\\u200bc\\udb40\\udc41');
  });

  it('a printable text is unchanged if it has no such characters', () => {
    const text = 'no such problem: "7 × 8", 问题, é, 🙂';
    assert.equal(printable(text), text);
  });

  it('printable JSON means the same and has no control character except its line breaks', () => {
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

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { excessIn, type JsonBounds } from '../../../shared/base/json-bounds.js';

const bytes = (text: string) => Buffer.from(text);

/** What a parsed value has of each that is bounded. */
function sizeOf(value: unknown): JsonBounds {
  if (typeof value !== 'object' || value === null) return { values: 1, containers: 0, depth: 0 };
  const parts = Object.values(value).map(sizeOf);
  return {
    values: parts.reduce((sum, { values }) => sum + values, 0) || 1,
    containers: 1 + parts.reduce((sum, { containers }) => sum + containers, 0),
    depth: 1 + Math.max(0, ...parts.map(({ depth }) => depth)),
  };
}

describe('the size of a JSON text', () => {
  it('the size of a JSON text is that of its value, whatever its strings contain', () => {
    const strange = fc.string({ unit: fc.constantFrom('"', '\\', ',', '[', ']', '{', '}', 'é') });
    const anyJson = fc.jsonValue({ maxDepth: 4, stringUnit: 'grapheme' });
    fc.assert(
      fc.property(
        fc.oneof(anyJson, fc.array(strange), fc.dictionary(strange, strange)),
        (value) => {
          const size = sizeOf(value);
          const text = bytes(JSON.stringify(value, undefined, 1));
          assert.equal(excessIn(text, size), undefined);
          for (const key of ['values', 'containers', 'depth'] as const) {
            if (size[key] <= (key === 'values' ? 1 : 0)) continue;
            assert.notEqual(excessIn(text, { ...size, [key]: size[key] - 1 }), undefined, key);
          }
        },
      ),
    );
  });

  it('the size of a JSON text is reported with its bound', () => {
    const bounds = { values: 100, containers: 10, depth: 5 };
    assert.equal(excessIn(bytes(`[${'1,'.repeat(100)}1]`), bounds), 'more than 100 values');
    const empty = bytes(`[${'[],'.repeat(10)}1]`);
    assert.equal(excessIn(empty, bounds), 'more than 10 arrays and objects');
    const deep = bytes('{"a":'.repeat(6));
    assert.equal(excessIn(deep, bounds), 'arrays and objects more than 5 deep');
  });
});

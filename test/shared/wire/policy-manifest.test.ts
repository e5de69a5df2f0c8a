import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encode as pack } from '@msgpack/msgpack';
import { decode, WireError } from '../../../shared/wire/codec.js';
import { objectOf, PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { manifest } from '../../actor/values.js';

const contents = { sha256: 'a'.repeat(64), bytes: 10, rank: 4, alpha: 8 };
const read = (adapter: object) =>
  decode(PolicyManifest, 'test', pack({ ...manifest(3), adapter })).adapter;

describe('where a manifest says that an adapter is', () => {
  it('the manifest of an older learner, which names an object, is read as an address in the object store', () => {
    const adapter = read({ object: 'adapter-3-0123456789abcdef', ...contents });
    assert.deepEqual(adapter, { uri: 'nats:adapter-3-0123456789abcdef', ...contents });
    assert.equal(objectOf(adapter), 'adapter-3-0123456789abcdef');
  });

  it('an address in the object store, on the web or on a volume is read as it is', () => {
    for (const uri of [
      'nats:adapter-3',
      'https://store.example/a?signature=s',
      'http://10.0.0.7:9000/a',
      'file:///mnt/adapters/a',
    ]) {
      assert.equal(read({ uri, ...contents })?.uri, uri);
    }
    assert.equal(objectOf({ uri: 'https://store.example/a' }), undefined);
  });

  it('any other address is refused, and so are none and two', () => {
    for (const uri of [
      'nats:',
      'ftp://store.example/a',
      '/mnt/adapters/a',
      'file://host/a',
      'file:///a%2Fb',
      'https://user:password@store.example/a',
      'data:text/plain,a',
      'javascript:alert(1)',
      `https://store.example/${'a'.repeat(8_192)}`,
    ]) {
      assert.throws(() => read({ uri, ...contents }), WireError, uri);
    }
    assert.throws(() => read(contents), /adapter.*uri/);
    assert.throws(() => read({ uri: 'nats:a', object: 'b', ...contents }), WireError);
    assert.throws(() => read({ uri: 'nats:a', ...contents, bytes: 2 ** 31 + 1 }), /adapter\.bytes/);
  });
});

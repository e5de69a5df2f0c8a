import assert from 'node:assert/strict';
import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { SafetensorsFile } from '../../../shared/model/safetensors-file.js';
import { encodeSafetensors } from '../../../shared/model/safetensors.js';

describe('a safetensors file on disk', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-safetensors-'));
  });
  after(() => rm(folder, { recursive: true }));

  it('a safetensors file on disk returns the tensors that were written, whole and in pieces', async () => {
    const path = join(folder, 'small.safetensors');
    const data = Float32Array.of(1, -2, 3.5, 0, 1e-30, 5);
    await writeFile(path, encodeSafetensors(new Map([['a', { dims: [2, 3], data }]])));
    await using file = await SafetensorsFile.open(path);
    assert.deepEqual(file.tensors.get('a')!.dims, [2, 3]);
    assert.deepEqual(await file.read('a'), data);
    const pieces: Uint8Array[] = [];
    for await (const piece of file.pieces('a')) pieces.push(piece);
    assert.deepEqual(Buffer.concat(pieces), Buffer.from(data.buffer));
    await assert.rejects(file.read('b'), /small\.safetensors has no tensor b/);
  });

  it('a safetensors file on disk may be larger than one read', async () => {
    const path = join(folder, 'large.safetensors');
    const gap = 5 * 2 ** 30; // more than a buffer holds; the file is sparse
    const header = Buffer.from(
      JSON.stringify({
        gap: { dtype: 'BF16', shape: [gap / 2], data_offsets: [0, gap] },
        last: { dtype: 'F32', shape: [2], data_offsets: [gap, gap + 8] },
      }),
    );
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(header.byteLength));
    const handle = await open(path, 'w');
    await handle.write(Buffer.concat([length, header]));
    const data = Float32Array.of(3, -4);
    await handle.write(data, 0, data.byteLength, 8 + header.byteLength + gap);
    await handle.close();

    await using file = await SafetensorsFile.open(path);
    assert.deepEqual(await file.read('last'), data);
  });

  it('a safetensors file on disk is refused if it is too short, and named', async () => {
    const path = join(folder, 'short.safetensors');
    await writeFile(path, 'abc');
    await assert.rejects(SafetensorsFile.open(path), /short\.safetensors is not .* has 3 bytes/);
  });
});

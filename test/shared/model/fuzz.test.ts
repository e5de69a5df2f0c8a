import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { PermanentError, UserError } from '../../../shared/base/errors.js';
import { parseModelConfig } from '../../../shared/model/model-config.js';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import {
  encodeSafetensors,
  parseSafetensors,
  toFloat32,
} from '../../../shared/model/safetensors.js';
import { SafetensorsFile } from '../../../shared/model/safetensors-file.js';
import { loadTokenizer } from '../../../shared/model/tokenizer.js';
import { fuzzRuns, mutationsOf, refusesOnly, textMutationsOf } from '../../support/mutations.js';

const tensors = new Map([
  ['a', { dims: [2, 3], data: Float32Array.of(1, -2, 3.5, 0, 1e-30, 5) }],
  ['b', { dims: [1], data: Float32Array.of(7) }],
]);
const file = encodeSafetensors(tensors, { note: 'x' });

describe('a safetensors file of any bytes', () => {
  it('a safetensors file of any bytes is read within its bounds or refused', () => {
    fc.assert(
      fc.property(mutationsOf([file]), (bytes) => {
        refusesOnly([PermanentError], () => {
          for (const entry of parseSafetensors(bytes, 'fuzz').values()) {
            assert(entry.bytes.byteLength <= bytes.byteLength);
            toFloat32(entry);
          }
        });
      }),
      { numRuns: fuzzRuns },
    );
  });

  it('a safetensors file of any bytes on disk is read or refused', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-fuzz-'));
    const path = join(folder, 'model.safetensors');
    try {
      await fc.assert(
        fc.asyncProperty(mutationsOf([file]), async (bytes) => {
          await writeFile(path, bytes);
          try {
            await using opened = await SafetensorsFile.open(path);
            for (const name of opened.tensors.keys()) await opened.read(name);
          } catch (caught) {
            assert(caught instanceof PermanentError, String(caught));
          }
        }),
        { numRuns: Math.ceil(fuzzRuns / 3) },
      );
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('a safetensors file is refused if its header claims more bytes than the file has', () => {
    const bytes = new Uint8Array(file);
    new DataView(bytes.buffer).setBigUint64(0, 2n ** 63n, true);
    assert.throws(() => parseSafetensors(bytes, 'x'), /its header claims/);
  });
});

describe('a model directory of any text', () => {
  it('a config.json of any text is parsed or refused with a UserError', async () => {
    const text = await readFile(join(embeddedModelPath, 'config.json'), 'utf8');
    fc.assert(
      fc.property(textMutationsOf([text]), (config) => {
        refusesOnly([UserError], () => parseModelConfig(config, 'config.json'));
      }),
      { numRuns: fuzzRuns },
    );
  });

  it(
    'a tokenizer of any text is loaded or refused with a UserError',
    { timeout: 120_000 },
    async () => {
      const names = ['tokenizer.json', 'tokenizer_config.json'] as const;
      const read = (name: string) => readFile(join(embeddedModelPath, name), 'utf8');
      const [vocabulary, settings] = await Promise.all(names.map(read));
      const config = parseModelConfig(await read('config.json'), 'config.json');
      await fc.assert(
        fc.asyncProperty(
          fc.oneof(
            fc.tuple(textMutationsOf([vocabulary!]), fc.constant(settings!)),
            fc.tuple(fc.constant(vocabulary!), textMutationsOf([settings!])),
          ),
          async (files) => {
            // A separate folder for each: the library caches what it has read.
            const path = await mkdtemp(join(tmpdir(), 'offbeat-fuzz-'));
            try {
              await Promise.all(names.map((name, i) => writeFile(join(path, name), files[i]!)));
              await loadTokenizer({ path, config });
            } catch (caught) {
              assert(caught instanceof UserError, String(caught));
            } finally {
              await rm(path, { recursive: true });
            }
          },
        ),
        { numRuns: Math.ceil(fuzzRuns / 6) },
      );
    },
  );
});

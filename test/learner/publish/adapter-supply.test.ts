import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { LearnerConfig } from '../../../learner/config.js';
import {
  AdapterSupply,
  needsAdapters,
  VersionNotFinite,
} from '../../../learner/publish/adapter-supply.js';
import { IdleClock } from '../../../learner/step/idle-clock.js';
import type { Adapters } from '../../../learner/settings/adapters.js';
import { sha256 } from '../../../shared/base/bytes.js';
import { encodeAdapter, weightFormat } from '../../../shared/model/lora.js';
import { parseModelConfig } from '../../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../../shared/model/model-writer.js';
import type { SamplerKind } from '../../../shared/wire/actor-lease.js';
import { silent } from '../../support/log.js';
import { actorLease } from '../../support/messages.js';
import { tinySizes, warmAdapter } from '../../support/tiny-model.js';

const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config.json');
const expiresAt = Date.UTC(2027, 0, 1);

/** A supply from a backend that has archives and signs links, and what it asked of the backend. */
function supplied(settings: Partial<Adapters> = {}, weight = 0.25) {
  const calls: string[] = [];
  const adapter = warmAdapter(config, 2);
  [...adapter.tensors.values()].at(-1)!.data[3] = weight;
  const { safetensors } = encodeAdapter(adapter);
  let links = 0;
  const sign = () => ({ url: `https://store.example/${links++}?sig=s`, expiresAt });
  const answer = (what: string) => (path: string) => {
    calls.push(`${what} ${path}`);
    return Promise.resolve({ adapter: safetensors, rank: 2, alpha: 4, link: sign() });
  };
  const leases: SamplerKind[] = [];
  const supply = new AdapterSupply({
    client: {
      locateAdapter: () => Promise.resolve(),
      downloadAdapter: answer('archive'),
      downloadExternal: answer('files'),
      signLink: (path) => {
        calls.push(`sign ${path}`);
        return Promise.resolve(sign());
      },
      deleteCheckpoint: (path) => {
        calls.push(`delete ${path}`);
        return Promise.resolve();
      },
    },
    run: {
      saveWeightsExternal: (name) => Promise.resolve(`tinker://run/external_weights/${name}`),
    },
    settings: { adapterStore: 'nats', adapterDtype: 'fp32', publishAdapters: 'auto', ...settings },
    runName: 'r',
    leases: () => Promise.resolve(leases.map((sampler) => actorLease({ sampler }))),
    idle: new IdleClock(() => 0),
    signal: new AbortController().signal,
    log: silent,
  });
  return { supply, calls, safetensors, leases };
}

const version = { version: 3, samplerPath: 'tinker://run/sampler_weights/3' };
const files = 'tinker://run/external_weights/policy-000003-files';

describe('the supply of adapters', () => {
  it('adapters are needed if an actor samples by itself, and while no actor is known, unless actors are to ask', () => {
    const leases = (...samplers: SamplerKind[]) => samplers.map((sampler) => ({ sampler }));
    for (const publish of ['auto', 'asked'] as const) {
      assert(!needsAdapters(leases('tinker', 'tinker'), publish));
      for (const sampler of ['onnx', 'vllm', 'sglang'] as const) {
        assert(needsAdapters(leases('tinker', sampler), publish));
      }
    }
    assert(needsAdapters([], 'auto'));
    assert(!needsAdapters([], 'asked'));
  });

  it('how the backend hands out adapters is found out without a download', async () => {
    const { supply, calls } = supplied();
    await supply.find(3, version.samplerPath);
    assert.deepEqual([supply.kind, calls], ['archive', []]);
  });

  it('for the object store an adapter stays as it is, with its format', async () => {
    const { supply, calls, safetensors } = supplied();
    const placed = await supply.place(3, (await supply.fetch(version))!);
    assert.deepEqual(placed, { bytes: safetensors, rank: 2, alpha: 4, format: 'F32' });
    assert.deepEqual(calls, [`archive ${version.samplerPath}`]);
  });

  it('with bfloat16 the rounded file is published', async () => {
    const { supply, safetensors } = supplied({ adapterDtype: 'bf16' });
    const { bytes, format } = (await supply.fetch(version))!;
    assert.deepEqual([format, weightFormat(bytes)], ['BF16', 'BF16']);
    assert(bytes.byteLength < 0.7 * safetensors.byteLength);
  });

  it('a weight that is not finite, before or after it is rounded, keeps the version from being published', async () => {
    await assert.rejects(supplied({}, NaN).supply.fetch(version), VersionNotFinite);
    const { supply } = supplied({ adapterDtype: 'bf16' }, 3.4e38);
    await assert.rejects(supply.fetch(version), /version 3 is not published: .* is Infinity$/);
    await supplied({}, 3.4e38).supply.fetch(version);
  });

  it('a link is passed on with the digest of the bytes behind it, and renewed before it expires', async () => {
    const { supply, calls, safetensors } = supplied({ adapterStore: 'link' });
    const adapter = await supply.place(3, (await supply.fetch(version))!);
    assert.deepEqual(adapter, {
      ...{ uri: 'https://store.example/0?sig=s', expiresAt, files, format: 'F32' },
      ...{ sha256: sha256(safetensors), bytes: safetensors.byteLength, rank: 2, alpha: 4 },
    });
    assert('uri' in adapter);
    const published = (minutes: number) => ({
      ...{ v: 1 as const, ...version, adapter, smallestUsefulVersion: 0 },
      publishedAt: expiresAt - 60_000 * minutes,
    });
    const left = (minutes: number) => expiresAt - 60_000 * minutes;
    assert(!supply.isExpiring(published(15), left(5)));
    assert(supply.isExpiring(published(15), left(4.9)));
    assert(!supply.isExpiring(published(4), left(2)));
    assert(supply.isExpiring(published(4), left(1.9)));
    assert(!supply.isExpiring({ ...published(15), adapter: undefined }, left(0)));
    const renewed = await supply.renew(adapter);
    assert.deepEqual(renewed, { ...adapter, uri: 'https://store.example/1?sig=s' });
    assert.deepEqual(calls, [`files ${files}`, `sign ${files}`]);
  });

  it('in a folder an adapter is a file, which is deleted with the version', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-supply-'));
    try {
      const { supply, safetensors } = supplied({ adapterStore: folder });
      await supply.open([]);
      const adapter = await supply.place(3, (await supply.fetch(version))!);
      assert('uri' in adapter);
      const name = (await readdir(join(folder, 'r')))[0]!;
      assert.equal(adapter.uri, `file://${join(folder, 'r', name)}`);
      assert.deepEqual(new Uint8Array(await readFile(join(folder, 'r', name))), safetensors);
      await supply.delete({ version: 3, adapter });
      assert.deepEqual(await readdir(join(folder, 'r')), []);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('whether adapters are needed follows the leases of the actors', async () => {
    const { supply, leases } = supplied({ publishAdapters: 'asked' });
    assert(!(await supply.areNeeded()));
    leases.push('tinker');
    assert(!(await supply.areNeeded()));
    leases.push('onnx');
    assert(await supply.areNeeded());
  });
});

describe('the settings of adapters', () => {
  const problems = (settings: object) =>
    LearnerConfig.safeParse({ run: 'r', maxSteps: 1, ...settings }).error?.issues.map(
      ({ path, message }) => `${path.join('.')}: ${message}`,
    );

  it('a store that is neither a word nor an absolute folder is refused, and so is a rounded link', () => {
    assert.equal(problems({ adapterStore: '/mnt/adapters', adapterDtype: 'bf16' }), undefined);
    assert.deepEqual(problems({ adapterStore: 'adapters' }), [
      'adapterStore: expected nats, link or an absolute folder',
    ]);
    assert.match(
      problems({ adapterStore: 'link', adapterDtype: 'bf16' })!.join(),
      /^adapterDtype: .*choose --adapter-store nats or a folder$/,
    );
  });
});

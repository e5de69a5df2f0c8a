import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { findVersion } from '../../../cli/eval/find-version.js';
import { statesAtServer, statesInFolder } from '../../../cli/eval/saved-states.js';
import type { Checkpoint, SavedState } from '../../../shared/wire/ledger.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import type { RunConfig } from '../../../shared/run/run-config.js';
import type { RunEvent } from '../../../shared/wire/run-event.js';
import { checkpoint, evalResult, runConfig } from '../../support/messages.js';
import { never } from '../../support/waiting.js';

type Evaluated = [version: number, problems: number];

/** A store that keeps versions 8 and 9, whose steps 1 … 9 made versions 1 … 9. */
function store(
  over: {
    config?: () => Promise<RunConfig | undefined>;
    versions?: number[];
    states?: Checkpoint['states'];
    again?: [step: number, version: number][]; // trained again after a crash
    evals?: Evaluated[];
    saved?: Partial<Checkpoint>;
    fetchAdapter?: (manifest: PolicyManifest) => Promise<Uint8Array>;
  } = {},
) {
  const versions = over.versions ?? [8, 9];
  const manifest = (version: number): PolicyManifest => ({
    v: 1,
    version,
    samplerPath: `tinker://run/sampler_weights/v${version}`,
    adapter: {
      uri: `nats:adapter-${version}`,
      sha256: '0'.repeat(64),
      bytes: 3,
      rank: 4,
      alpha: 8,
    },
    smallestUsefulVersion: 0,
    publishedAt: 0,
  });
  async function* past(): AsyncGenerator<RunEvent> {
    const first = Array.from({ length: 9 }, (_, i): [number, number] => [i + 1, i + 1]);
    for (const [step, version] of [...first, ...(over.again ?? [])]) {
      yield await Promise.resolve({ v: 1, at: step, kind: 'step', step, version, metrics: {} });
    }
    for (const [version, problems] of over.evals ?? []) {
      yield { v: 1, at: 10, kind: 'eval', result: evalResult({ version, problems }) };
    }
  }
  const newest = () => versions.at(-1);
  return {
    run: 'r',
    config: { get: over.config ?? (() => Promise.resolve(runConfig())) },
    policy: {
      versions: () => Promise.resolve(versions),
      current: () => Promise.resolve(newest() === undefined ? undefined : manifest(newest()!)),
      at: (version: number) =>
        Promise.resolve(versions.includes(version) ? manifest(version) : undefined),
      fetchAdapter:
        over.fetchAdapter ??
        (({ version }: PolicyManifest) => Promise.resolve(Uint8Array.of(version))),
    },
    ledger: {
      read: () =>
        Promise.resolve(
          checkpoint({
            ...{ step: 5, version: 5, statePath: 'tinker://run/weights/state-000005' },
            ...(over.states !== undefined && { states: over.states }),
            ...over.saved,
          }),
        ),
    },
    events: { past },
  } as never;
}

const noStates = () => Promise.resolve<SavedState[]>([]);

describe('the version to be evaluated', () => {
  it('the version to be evaluated is by default the newest, with its adapter', async () => {
    const found = await findVersion(store(), 'latest', noStates, never);
    assert.deepEqual([found.version, found.step], [9, 9]);
    assert.equal(found.samplerPath, 'tinker://run/sampler_weights/v9');
    assert.deepEqual(found.adapter, { bytes: Uint8Array.of(9), rank: 4, alpha: 8 });
  });

  it('the version to be evaluated may be an older one that actors could still sample with', async () => {
    const { version, statePath } = await findVersion(store(), 8, noStates, never);
    assert.deepEqual([version, statePath], [8, undefined]);
  });

  it('the version to be evaluated is a newer one if the run retires it between two reads', async () => {
    const versions = [8, 9];
    const fetchAdapter = ({ version }: PolicyManifest) => {
      if (version === 10) return Promise.resolve(Uint8Array.of(10));
      versions.splice(0, 2, 10);
      return Promise.reject(new Error('retired'));
    };
    const found = await findVersion(store({ versions, fetchAdapter }), 'latest', noStates, never);
    assert.deepEqual([found.version, found.adapter?.bytes], [10, Uint8Array.of(10)]);
    await assert.rejects(
      findVersion(store({ fetchAdapter }), 8, noStates, never),
      /retired/,
      'it is still said to be there',
    );
  });

  it('the step of a version after a crash is that of its weights, not of one that the crash undid', async () => {
    const stepOf = async (asked: number | 'latest', over: Parameters<typeof store>[0]) =>
      (await findVersion(store(over), asked, noStates, never)).step;
    // Steps 6 to 9 are undone: the weights of step 5 are published again as version 10, and step 6 is trained again.
    const rewinds = [{ from: 10, to: 5 }];
    const versions = [8, 10, 11];
    const again: [number, number][] = [[6, 11]];
    assert.equal(await stepOf('latest', { versions: [10], saved: { rewinds } }), 5);
    assert.equal(await stepOf('latest', { versions, again, saved: { rewinds } }), 6);
    assert.equal(await stepOf(10, { versions, again }), 5);
    assert.equal(await stepOf(8, { versions, again }), 8); // weights that were undone
    // Published once more after the checkpoint of step 6, and saved without a step.
    const saved = { step: 6, version: 12 };
    assert.equal(await stepOf('latest', { versions: [12], again, saved }), 6);
  });

  it('the version to be evaluated may be that of the last checkpoint', async () => {
    const found = await findVersion(store(), 5, noStates, never);
    assert.deepEqual(
      [found.step, found.statePath, found.adapter],
      [5, 'tinker://run/weights/state-000005', undefined],
    );
  });

  it('the version to be evaluated may be any other that the backend has saved', async () => {
    const states = (ledger: string | undefined) => {
      assert.equal(ledger, 'tinker://run/weights/state-000005');
      return Promise.resolve([
        { path: 'tinker://run/weights/state-000000', step: 0 },
        { path: 'tinker://run/weights/state-000003', step: 3 },
      ]);
    };
    assert.equal(
      (await findVersion(store(), 3, states, never)).statePath,
      'tinker://run/weights/state-000003',
    );
    assert.equal((await findVersion(store(), 0, states, never)).step, 0);
    await assert.rejects(
      findVersion(store(), 4, states, never),
      /version 4 of run r was deleted or never existed; there are 0, 3, 5, 8, 9\. --version best and latest/,
    );
  });

  it('the version to be evaluated may be one that an earlier session saved, whose states only the ledger names', async () => {
    const path = 'tinker://earlier/weights/state-000003';
    const there = store({ states: [{ step: 3, path, score: 0.5 }] });
    assert.equal((await findVersion(there, 3, noStates, never)).statePath, path);
  });

  it('version 0 can always be evaluated: it is the base model, or what the run began from', async () => {
    const base = await findVersion(store(), 0, noStates, never);
    assert.deepEqual([base.version, base.step, base.statePath], [0, 0, undefined]);
    const from = { path: 'tinker://warm/weights/state-000064' };
    const begun = store({ config: () => Promise.resolve(runConfig({ from })) });
    assert.equal((await findVersion(begun, 0, noStates, never)).statePath, from.path);
  });

  it('the version to be evaluated may be the best saved one that was evaluated, the newer of equals', async () => {
    const path = (step: number) => `tinker://run/weights/state-00000${step}`;
    const states = [
      { step: 2, path: path(2), score: 0.7 },
      { step: 3, path: path(3), score: 0.7 },
      { step: 5, path: path(5), score: 0.4 },
      { step: 6, path: path(6) },
    ];
    const saved = () => Promise.resolve(states.map(({ step, path: at }) => ({ step, path: at })));
    const best = await findVersion(store({ states }), 'best', saved, never);
    assert.deepEqual([best.version, best.statePath], [3, path(3)]);
    await assert.rejects(
      findVersion(store(), 'best', saved, never),
      /no saved version of run r has been evaluated; ask for --version latest$/,
    );
  });

  it('the best version is the best among those evaluated on as many problems as the newest, in older ledgers too', async () => {
    const path = (step: number) => `tinker://run/weights/state-00000${step}`;
    const states = [
      { step: 1, path: path(1), score: 0.9 },
      { step: 2, path: path(2), score: 0.5 },
      { step: 3, path: path(3), score: 0.6 },
      { step: 4, path: path(4), score: 0.4 },
    ];
    const best = async (evals: Evaluated[]) =>
      (await findVersion(store({ states, evals }), 'best', noStates, never)).step;
    const evals: Evaluated[] = [[1, 64], ...[2, 3, 4].map((step): Evaluated => [step, 1_024])];
    assert.equal(await best(evals), 3);
    assert.equal(await best([...evals, [7, 64]]), 3); // its state is not saved
    assert.equal(await best([...evals, [4, 64]]), 1); // evaluated again
    assert.equal(await best([]), 1);
  });

  it('the version to be evaluated does not exist before the first is published', async () => {
    const empty = store({ versions: [] });
    await assert.rejects(findVersion(empty, 'latest', noStates, never), /has not published/);
  });

  it('the version to be evaluated must belong to a run that the server knows', async () => {
    const unknown = store({ config: () => Promise.resolve(undefined) });
    await assert.rejects(findVersion(unknown, 1, noStates, never), /knows no run r$/);
  });
});

describe('the saved states', () => {
  it('the saved states in a folder are those of all sessions of the run', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-states-'));
    for (const path of ['a/weights/state-000010', 'b/weights/.new.1', 'b/weights/state-000020']) {
      await mkdir(join(folder, path), { recursive: true });
    }
    await mkdir(join(folder, 'b/sampler_weights/policy-000020'), { recursive: true });
    assert.deepEqual(await statesInFolder(folder), [
      { path: 'tinker://a/weights/state-000010', step: 10 },
      { path: 'tinker://b/weights/state-000020', step: 20 },
    ]);
    await rm(folder, { recursive: true });
    assert.deepEqual(await statesInFolder(folder), []);
  });

  it('the saved states on a server are the training checkpoints of the run', async () => {
    const client = {
      listCheckpoints: (runId: string) => {
        assert.equal(runId, 'run');
        return Promise.resolve([
          { path: 'tinker://run/weights/state-000004', kind: 'training' },
          { path: 'tinker://run/sampler_weights/policy-000005', kind: 'sampler' },
        ]);
      },
    };
    assert.deepEqual(await statesAtServer(client as never, 'tinker://run/weights/state-000005'), [
      { path: 'tinker://run/weights/state-000004', step: 4 },
    ]);
  });
});

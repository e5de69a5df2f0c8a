import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { deleteOrphans } from '../../../learner/checkpoints/retention.js';
import { RunLost } from '../../../shared/tinker/errors.js';
import { silent } from '../../support/log.js';

/** A backend with these checkpoints; the manifests name `samplers`. @returns what is left. */
async function sweep(
  checkpoints: readonly string[],
  {
    states,
    samplers,
    files,
  }: {
    states: readonly string[];
    samplers: readonly string[];
    files?: string; // of each version, where its adapter is a link
  },
  failure?: Error, // of listing the checkpoints of run a
  confirmLead = () => Promise.resolve(),
) {
  const left = new Set(checkpoints);
  let sweptAdapters = 0;
  const client = {
    listCheckpoints: (run: string) =>
      failure !== undefined && run === 'a'
        ? Promise.reject(failure)
        : Promise.resolve(
            [...left]
              .filter((path) => path.startsWith(`tinker://${run}/`))
              .map((path) => ({ path, kind: 'training' as const })),
          ),
    deleteCheckpoint: (path: string) => Promise.resolve(void left.delete(path)),
  };
  const policy = {
    versions: () => Promise.resolve([...samplers.keys()]),
    at: (version: number) =>
      Promise.resolve({ samplerPath: samplers[version]!, adapter: { files } } as never),
    deleteOrphans: () => Promise.resolve((sweptAdapters += 1)),
  };
  const options = {
    client,
    policy,
    states: states.map((path) => ({ path })),
    confirmLead,
    log: silent,
  };
  const deleted = await deleteOrphans(options);
  return { deleted, left: [...left], sweptAdapters };
}

describe('checkpoints of a run that nothing names', () => {
  const state = 'tinker://a/weights/state-000002';
  const sampler = 'tinker://b/sampler_weights/policy-000007';

  it('orphaned checkpoints of earlier learners are deleted, and no others', async () => {
    const orphans = [
      'tinker://a/weights/state-000004',
      'tinker://a/sampler_weights/policy-000004',
      'tinker://b/weights/state-000008',
    ];
    const others = ['tinker://c/weights/state-000001', 'tinker://a/weights/by-hand'];
    const { deleted, left, sweptAdapters } = await sweep([state, sampler, ...orphans, ...others], {
      states: [state],
      samplers: [sampler],
    });
    assert.equal(deleted, 3);
    assert.deepEqual(left, [state, sampler, ...others]);
    assert.equal(sweptAdapters, 1);
  });

  it('the files that a published version links to stay', async () => {
    const files = 'tinker://b/external_weights/policy-000007-files';
    const orphan = 'tinker://b/external_weights/policy-000006-files';
    const { left } = await sweep([sampler, files, orphan], {
      ...{ states: [], samplers: [sampler], files },
    });
    assert.deepEqual(left, [sampler, files]);
  });

  it('orphaned checkpoints stay if another learner leads, which may have saved them', async () => {
    const deposed = () => Promise.reject(new Error('another learner leads'));
    const orphan = 'tinker://a/weights/state-000004';
    const named = { states: [state], samplers: [] };
    const { left, sweptAdapters } = await sweep([state, orphan], named, undefined, deposed);
    assert.deepEqual([left, sweptAdapters], [[state, orphan], 0]);
  });

  it('orphaned checkpoints stay if the backend does not answer, and the learner continues', async () => {
    const named = { states: [state], samplers: [] };
    const { deleted } = await sweep([state], named, new Error('backend unavailable'));
    assert.equal(deleted, 0);
  });

  it('orphaned checkpoints are deleted although the backend no longer knows another run of the learner', async () => {
    const failure = { operation: 'list', url: 'http://h', status: 404, detail: 'unknown run' };
    const orphan = 'tinker://b/weights/state-000008';
    const { left } = await sweep(
      ...([[sampler, orphan], { states: [state], samplers: [sampler] }] as const),
      new RunLost(failure),
    );
    assert.deepEqual(left, [sampler]);
  });
});

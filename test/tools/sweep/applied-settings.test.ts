import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { ActorConfig } from '../../../actor/config.js';
import { loadUpConfig } from '../../../cli/up/load-up-config.js';
import { LearnerConfig, runConfig } from '../../../learner/config.js';
import type { RunConfig } from '../../../shared/run/run-config.js';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import { LocalBackendConfig } from '../../../local-backend/config.js';
import { RewardServiceConfig } from '../../../reward-service/config.js';
import { appliedSettings, differences, flagsOf } from '../../../tools/sweep/applied-settings.js';

const others = {
  actor: ActorConfig,
  'reward-service': RewardServiceConfig,
  'local-backend': LocalBackendConfig,
};
const schemas = { learner: LearnerConfig, others, runConfig };
/** The schema with other fields. Its own rules refer to the fields' types, and are left out. */
const changed = ({ shape }: z.ZodObject, fields: z.ZodRawShape) =>
  z.object({ ...shape, ...fields });

const cool = { name: 'cool', settings: { temperature: 0.3 }, where: {} };

describe('the flags of a run of an experiment', () => {
  it('a run of an experiment has no dashboard, unless its settings ask for one', () => {
    const dashboardWith = (settings: Record<string, boolean>) =>
      loadUpConfig(LearnerConfig, flagsOf({ settings }), {}).config.dashboard;
    assert.deepEqual([dashboardWith({}), dashboardWith({ dashboard: true })], [false, true]);
  });
});

describe('the number of actors of an experiment', () => {
  const actorsWith = (settings: Record<string, string | number>) =>
    loadUpConfig(LearnerConfig, flagsOf({ settings }), {}).config.actors;

  it('the number of actors of an experiment does not depend on the machine', () => {
    assert(flagsOf({ settings: {} }).includes('--actors=2'));
    assert.deepEqual([actorsWith({}), actorsWith({ actors: 1 })], [2, 1]);
    const engine = { sampler: 'vllm', engineUrl: 'http://gpu:8000', modelDir: '/m' };
    assert.equal(actorsWith(engine), 1);
  });

  it('the number of actors of an experiment does not hide that its sampler is unknown', () => {
    assert.throws(() => actorsWith({ sampler: 'llama' }), /--sampler/);
  });
});

describe('the settings that apply to a run of an experiment', async () => {
  const applied = await appliedSettings(schemas, { groupSize: 8, segmentTokens: 3 }, [cool]);

  it('the settings that apply are those given and the defaults of each process', () => {
    const { up, learner, actor, 'evaluation cool': evaluation } = applied;
    assert.deepEqual([learner!['groupSize'], learner!['groupsPerBatch']], [8, 16]);
    assert.deepEqual([up!['actors'], up!['inFlightUpdates']], [2, true]);
    assert.deepEqual([evaluation!['temperature'], evaluation!['samples']], [0.3, 4]);
    assert.equal(actor!['concurrency'], 'auto');
    assert.equal('segmentTokens' in actor!, false, 'the launcher gives it to the actors');
  });

  it('the settings that apply have the defaults that follow from the model and other settings', () => {
    const { adam, loss, task } = applied['the run'] as unknown as RunConfig;
    assert.equal(adam.learningRate, 0.002);
    assert.deepEqual([loss.name, loss.config['clip_high_threshold']], ['cispo', 4]);
    assert.equal(task.dataset.kind, 'generator');
    assert('formatScore' in task.reward && task.reward.formatScore === 0.1);
  });

  it('the settings that apply leave out names, places, keys and what depends on the machine', async () => {
    const keys = Object.values(applied).flatMap((settings) => Object.keys(settings));
    const odd = keys.filter((key) =>
      /^(name|run|runsDir|modelDir|threads|healthPort|natsUrl)$|Key$/.test(key),
    );
    assert.deepEqual(odd, []);
    const withKey = { backendUrl: 'http://x', apiKey: 'tml-secret', modelDir: embeddedModelPath };
    assert.doesNotMatch(JSON.stringify(await appliedSettings(schemas, withKey, [])), /secret/);
  });

  it('another default of the launcher, the learner, a service or an evaluation is a difference', async () => {
    const later = {
      ...schemas,
      learner: changed(LearnerConfig, { groupSize: z.coerce.number().default(99) }),
      others: { ...others, actor: changed(ActorConfig, { concurrency: z.any().default(5) }) },
    };
    const settings = { loraRank: 8 };
    const before = await appliedSettings(schemas, settings, []);
    assert.deepEqual(differences(before, await appliedSettings(schemas, settings, [])), []);
    assert.deepEqual(differences(before, await appliedSettings(later, settings, [])), [
      '--group-size of learner was 16 and is 99 now',
      'groupSize of the run was 16 and is 99 now',
      '--concurrency of actor was "auto" and is 5 now',
    ]);
    assert.deepEqual(
      differences({ ...before, new: { x: 1 } }, { ...before, learner: before['learner']! }),
      ['--x of new was 1 and is not set now'],
    );
    const warm = { ...cool, settings: { temperature: 0.3, samples: 8 } };
    assert.deepEqual(
      differences(
        await appliedSettings(schemas, settings, [cool]),
        await appliedSettings(schemas, settings, [warm]),
      ),
      ['--samples of evaluation cool was 4 and is 8 now'],
    );
  });

  it('settings that an evaluation would refuse are refused before the runs', async () => {
    const odd = { ...cool, settings: { temperatur: 1 } };
    await assert.rejects(
      appliedSettings(schemas, {}, [odd]),
      /--temperatur is not a flag; did you/,
    );
  });
});

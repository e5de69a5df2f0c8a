import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { loadPlaces } from '../../../cli/doctor/doctor-config.js';
import { runConfig } from '../../support/messages.js';

describe('the settings of the doctor', () => {
  let runsDir: string;
  before(async () => {
    runsDir = await mkdtemp(join(tmpdir(), 'offbeat-doctor-runs-'));
    await mkdir(join(runsDir, 'mine'));
    const launcher = {
      ...{ sampler: 'vllm', engineUrl: 'http://gpu-0:8000', modelDir: '/models/qwen' },
      ...{ backendUrl: 'http://tuft:10610', natsUrl: 'nats://bus:4222' },
    };
    const launch = { run: 'mine', launcher, settings: { loraRank: 8 } };
    await writeFile(join(runsDir, 'mine', 'launch.json'), JSON.stringify(launch));
  });
  after(() => rm(runsDir, { recursive: true }));
  const places = async (...flags: string[]) => {
    const found = await loadPlaces([`--runs-dir=${runsDir}`, ...flags], {});
    const { engineUrl, loraRank, modelDir, backendUrl } = found;
    return { engineUrl, loraRank, modelDir, backendUrl };
  };

  it('the doctor takes from a run everything that its flags leave open', async () => {
    const began = {
      ...{ engineUrl: 'http://gpu-0:8000', loraRank: 8 },
      ...{ modelDir: '/models/qwen', backendUrl: 'http://tuft:10610' },
    };
    assert.deepEqual(await places('--run=mine'), began);
    const flags = ['--engine-url=http://gpu-1:8000', '--lora-rank=4'];
    assert.deepEqual(await places('--run=mine', ...flags), {
      ...began,
      ...{ engineUrl: 'http://gpu-1:8000', loraRank: 4 },
    });
  });

  it('the doctor prefers the rank that the learner of a run has settled, and else has a default', async () => {
    const settled = runConfig({ run: 'mine', lora: { rank: 16, seed: 0 } });
    await writeFile(join(runsDir, 'mine', 'config.json'), JSON.stringify(settled));
    assert.equal((await places('--run=mine')).loraRank, 16);
    assert.equal((await places()).loraRank, 32);
  });

  it('the doctor refuses a run that exists neither here nor on a server that is named', async () => {
    await assert.rejects(places('--run=mune'), {
      name: 'UserError',
      message: /no run mune .*did you mean mine\?.*--nats-url/,
    });
    const flags = ['--nats-url=nats://bus:4222', '--engine-url=http://gpu-1:8000'];
    assert.equal((await places('--run=mune', ...flags)).engineUrl, 'http://gpu-1:8000');
  });

  it('the doctor refuses keys without the NATS server that they are for', async () => {
    await assert.rejects(places('--nats-keys=keys'), /--nats-keys .*add --nats-url/);
    await places('--nats-keys=keys', '--nats-url=nats://bus:4222');
  });
});

import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { ServiceProcess } from '../support/service-process.js';
import { tinyModel } from '../support/tiny-model.js';

describe('a service given a model that cannot be run', { timeout: 60_000 }, () => {
  const services: [service: string, flags: string[]][] = [
    ['learner', ['--run=any', '--nats-url=nats://127.0.0.1:9']], // nobody listens: it is not asked
    ['local-backend', ['--port=0', '--checkpoint-dir=/nowhere', '--api-key=tml-anybody']],
  ];
  for (const [service, flags] of services) {
    it(`a ${service} given an unsupported model ends at once, naming the key of config.json`, async () => {
      await using model = await tinyModel();
      const path = join(model.path, 'config.json');
      const json = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
      await writeFile(path, JSON.stringify({ ...json, rope_scaling: { rope_type: 'longrope' } }));

      await using process = new ServiceProcess(service, [...flags, `--model-dir=${model.path}`]);
      assert.equal(await process.exitCode(), 2, process.tail);
      assert.match(process.errors, /config\.json .*:\n {2}- rope_scaling\.rope_type is "longrope"/);
    });
  }
});

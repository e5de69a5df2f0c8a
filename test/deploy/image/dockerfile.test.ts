import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { validate } from 'dockerfile-utils';
import { packageRoot } from '../../../shared/base/package-root.js';
import { serveHealth } from '../../../shared/service/telemetry/health-server.js';

const read = (path: string) => readFile(join(packageRoot, path), 'utf8');

describe('the Dockerfile', async () => {
  const text = await read('deploy/image/Dockerfile');
  const stages = text.split(/^(?=FROM )/m).slice(1);
  const last = stages.at(-1)!;

  it('the Dockerfile passes the linter', () => {
    assert.deepEqual(validate(text), []);
  });

  it('the Dockerfile builds and runs in separate stages, on one pinned base', () => {
    const bases = stages.map((stage) => /^FROM (\S+)/.exec(stage)![1]!);
    assert.equal(bases.length, 2);
    assert.equal(new Set(bases).size, 1);
    assert.match(bases[0]!, /:22\.\d+\.\d+-bookworm-slim$/);
    assert.doesNotMatch(last, /\bnpm\b|\btsc\b/);
  });

  it('the Dockerfile runs as the user of the manifests, who owns only the working directory', async () => {
    const [, user] = /^USER (\d+):\1$/m.exec(last)!;
    const learner = await read('deploy/k8s/base/learner.yaml');
    assert.match(learner, new RegExp(`runAsUser: ${user!}\n`));
    assert.doesNotMatch(last.slice(last.indexOf('\nUSER ')), /^(RUN|COPY|ADD) /m);
    assert.deepEqual(last.match(/chown .*/g), ['chown offbeat:offbeat /var/lib/offbeat']);
    assert.match(learner, /mountPath: \/var\/lib\/offbeat\b/);
  });

  it('the Dockerfile takes the service as its command and has a health check', () => {
    assert.match(last, /^ENTRYPOINT \["node", "\/app\/dist\/bundle\/cli\.js"\]$/m);
    assert.match(stages[0]!, /^ +&& node cli\/bundle\.mjs \\$/m);
    assert.match(last, /^HEALTHCHECK .*\\\n +CMD \["node", "\/app\/healthcheck\.mjs"\]$/m);
  });

  it('the Dockerfile gives every service the port that the health check asks, unless its user names another', async () => {
    const services = ['learner', 'actor', 'reward-service', 'score-server', 'local-backend'];
    for (const service of services) {
      const name = `${service.replace('-', '_').toUpperCase()}_HEALTH_PORT`;
      assert.match(last, new RegExp(`[ =]${name}=9090\\b`), name);
    }
    await using health = await serveHealth('127.0.0.1', 0, () => undefined);
    const check = (port: number) =>
      promisify(execFile)(process.execPath, [join(packageRoot, 'deploy/image/healthcheck.mjs')], {
        env: { LEARNER_HEALTH_PORT: '9090', ACTOR_HEALTH_PORT: String(port) },
      });
    await check(health.port);
    await assert.rejects(check(1));
  });

  it('the Dockerfile has a build context of exactly the files that it copies', async () => {
    const copied = stages[0]!
      .split('\n')
      .filter((line) => line.startsWith('COPY '))
      .flatMap((line) => line.split(' ').slice(1, -1));
    const allowed = (await read('.dockerignore'))
      .split('\n')
      .filter((line) => line.startsWith('!'))
      .map((line) => line.slice(1));
    assert.deepEqual(allowed.sort(), copied.sort());
  });
});

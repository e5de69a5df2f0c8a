import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { identityName, type Identity } from '../../../shared/broker/permissions.js';
import { packageRoot } from '../../../shared/package-root.js';
import { complaints, kustomize } from '../../support/kubernetes.js';
import { metricsIn } from '../../support/promql.js';
import { environmentOf, podsOf, type ScaledObject } from '../../support/workloads.js';

const production = 'deploy/k8s/overlays/production';

describe('the other signal for actors', async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  it(
    'takes the place of the first, by a query for metrics that are recorded',
    { skip },
    async () => {
      assert(typeof render !== 'string');
      const objects = await render('test/deploy/k8s/starvation');
      assert.deepEqual(objects.flatMap(complaints), []);
      const scaled = objects.filter(
        ({ kind }) => kind === 'ScaledObject',
      ) as unknown as ScaledObject[];
      const { triggers } = scaled.find(({ spec }) => spec.scaleTargetRef.name === 'actor')!.spec;
      const rules = await readFile(join(packageRoot, 'deploy/prometheus/recording.yaml'), 'utf8');
      const asked = triggers.flatMap(({ metadata }) => metricsIn(metadata['query']!));
      assert.deepEqual(
        asked.map((name) => rules.includes(`record: ${name}\n`)),
        [true, true],
      );
    },
  );
});

describe('the component for traces', async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  it('tells every service of the run where the collector is', { skip }, async () => {
    assert(typeof render !== 'string');
    const objects = await render('test/deploy/k8s/tracing');
    assert.deepEqual(objects.flatMap(complaints), []);
    const maps = objects.filter(({ kind }) => kind === 'ConfigMap');
    const told = objects
      .flatMap(podsOf)
      .filter(({ name }) => ['learner', 'actor', 'reward-service'].includes(name))
      .map(({ container }) => environmentOf(container, maps)['OTEL_EXPORTER_OTLP_ENDPOINT']);
    assert.deepEqual(told, Array(3).fill('http://otel-collector.monitoring:4318'));
  });
});

describe('the component that opens POST /score', async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  const reached = async (folder: string) => {
    assert(typeof render !== 'string');
    const objects = await render(folder);
    assert.deepEqual(objects.flatMap(complaints), []);
    const rewards = objects.flatMap(podsOf).find(({ name }) => name === 'reward-service')!;
    const maps = objects.filter(({ kind }) => kind === 'ConfigMap');
    const names = objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
    return {
      host: environmentOf(rewards.container, maps)['REWARD_SERVICE_HTTP_HOST'],
      key: rewards.container.env?.find(({ name }) => name === 'REWARD_SERVICE_HTTP_KEY')?.valueFrom,
      isService: names.includes('Service reward-service'),
      isLetIn: names.includes('NetworkPolicy scores'),
    };
  };

  it('opens it with the key of a Secret; without it nobody reaches it', { skip }, async () => {
    assert.deepEqual(await reached('test/deploy/k8s/scores'), {
      host: '0.0.0.0',
      key: { secretKeyRef: { name: 'scores', key: 'key' } },
      isService: true,
      isLetIn: true,
    });
    for (const overlay of ['dev', 'gpu', 'production']) {
      assert.deepEqual(await reached(`deploy/k8s/overlays/${overlay}`), {
        host: undefined,
        key: undefined,
        isService: false,
        isLetIn: false,
      });
    }
  });
});

describe('the production overlay', async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  it('mounts the keys that offbeat nats-config writes, to each pod its own', { skip }, async () => {
    assert(typeof render !== 'string');
    const objects = await render(production);
    const actors = objects.find(
      ({ kind, metadata }) => `${kind} ${metadata.name}` === 'StatefulSet actor',
    );
    const [{ container }] = podsOf(actors!) as [ReturnType<typeof podsOf>[0]];
    const key = container.volumeMounts?.find(({ name }) => name === 'nats-key');
    const fileOf = (identity: Identity) => `${identityName(identity)}.nk`;
    assert.equal(
      key?.subPathExpr?.replace('$(POD_NAME)', 'actor-7'),
      fileOf({ role: 'actor', actor: 'actor-7' }),
    );
    const environment = objects
      .flatMap(podsOf)
      .flatMap(({ container: { env } }) => env ?? [])
      .filter(({ name }) => name.endsWith('_NKEY_SEED_FILE'))
      .map(({ value }) => value!.replace(/.*[/]/, ''));
    const roles = [fileOf({ role: 'learner' }), fileOf({ role: 'reward' })];
    assert.deepEqual(environment.sort(), ['actor.nk', ...roles].sort());
  });

  it('keeps its streams on three servers', { skip }, async () => {
    assert(typeof render !== 'string');
    const objects = await render(production);
    const learner = objects.flatMap(podsOf).find(({ name }) => name === 'learner')!;
    const maps = objects.filter(({ kind }) => kind === 'ConfigMap');
    const { LEARNER_STREAM_REPLICAS: replicas, LEARNER_NATS_URL: url } = environmentOf(
      learner.container,
      maps,
    );
    assert.equal(replicas, '3');
    assert.match(url!, /^tls:/);
  });
});

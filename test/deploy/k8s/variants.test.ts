import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { runCommand } from '../../../cli/run-command.js';
import { identityName, type Identity } from '../../../shared/broker/permissions.js';
import { packageRoot } from '../../../shared/base/package-root.js';
import { complaints, kustomize, type KubernetesObject } from '../../support/kubernetes.js';
import { runOffbeat } from '../../support/offbeat.js';
import { metricsIn } from '../../support/promql.js';
import { environmentOf, podsOf, scalingOf } from '../../support/workloads.js';

const production = 'deploy/k8s/overlays/production';
const tuftExample = 'deploy/k8s/components/tuft/tuft_config.example.yaml';

describe('the starvation component', async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  it(
    'the starvation component scales actors by queries for recorded metrics',
    { skip },
    async () => {
      assert(typeof render !== 'string');
      const objects = await render('test/deploy/k8s/starvation');
      assert.deepEqual(objects.flatMap(complaints), []);
      const spec = scalingOf(objects, 'actor');
      assert(!('fallback' in spec), 'KEDA refuses it for a trigger that is not AverageValue');
      const { triggers } = spec;
      // Without a value KEDA would scale down to the least; the threshold keeps the number of actors.
      const { query = '', threshold = '' } = triggers[0]!.metadata;
      assert(query.endsWith(` or vector(${threshold})`), query);
      const { data } = objects.find(
        ({ kind, metadata }) => kind === 'ConfigMap' && /^run-/.test(metadata.name),
      ) as unknown as { readonly data: { readonly RUN: string } };
      assert(query.includes(`{run="${data.RUN}",cause="groups"}`), query);
      const rules = await readFile(join(packageRoot, 'deploy/prometheus/recording.yaml'), 'utf8');
      const queried = triggers.flatMap(({ metadata }) => metricsIn(metadata['query']!));
      assert.deepEqual(
        queried.map((name) => rules.includes(`record: ${name}\n`)),
        [true, true],
      );
    },
  );
});

describe('the tracing component', async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  it(
    'the tracing component sets the endpoint of the collector in every service of the run',
    { skip },
    async () => {
      assert(typeof render !== 'string');
      const objects = await render('test/deploy/k8s/tracing');
      assert.deepEqual(objects.flatMap(complaints), []);
      const maps = objects.filter(({ kind }) => kind === 'ConfigMap');
      const endpoints = objects
        .flatMap(podsOf)
        .filter(({ name }) => ['learner', 'actor', 'reward-service'].includes(name))
        .map(({ container }) => environmentOf(container, maps)['OTEL_EXPORTER_OTLP_ENDPOINT']);
      assert.deepEqual(endpoints, Array(3).fill('http://otel-collector.monitoring:4318'));
    },
  );

  it(
    'the tracing component lets TuFT send to the same collector, where its example says',
    { skip },
    async () => {
      assert(typeof render !== 'string');
      const objects = await render('test/deploy/k8s/tracing');
      const policy = objects.find(
        ({ kind, metadata }) => `${kind} ${metadata.name}` === 'NetworkPolicy backend-traces',
      ) as unknown as {
        spec: {
          podSelector: { matchLabels: Record<string, string> };
          egress: { ports: { port: number }[] }[];
        };
      };
      const { matchLabels } = policy.spec.podSelector;
      const tuft = objects.flatMap(podsOf).find(({ name }) => name === 'tuft')!;
      for (const [key, value] of Object.entries(matchLabels)) assert.equal(tuft.labels[key], value);
      const text = await readFile(join(packageRoot, tuftExample), 'utf8');
      const { telemetry } = parse(text.replace('# telemetry', 'telemetry')) as {
        telemetry: { enabled: boolean; otlp_endpoint: string };
      };
      const { host, hostname, port } = new URL(telemetry.otlp_endpoint);
      assert.deepEqual([telemetry.enabled, hostname], [true, 'otel-collector.monitoring'], host);
      assert.deepEqual(policy.spec.egress[0]!.ports, [{ port: Number(port) }]);
    },
  );
});

describe('the scores component, which exposes POST /score', async () => {
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
      mayAsk: objects.find(({ metadata }) => metadata.name === 'score-clients')?.['spec'],
    };
  };

  it(
    'the scores component exposes the endpoint with the key of a Secret; other overlays do not expose it',
    { skip },
    async () => {
      assert.deepEqual(await reached('test/deploy/k8s/scores'), {
        host: '0.0.0.0',
        key: { secretKeyRef: { name: 'scores', key: 'key' } },
        isService: true,
        isLetIn: true,
        mayAsk: {
          podSelector: {},
          policyTypes: ['Egress'],
          egress: [
            {
              to: [
                {
                  podSelector: { matchLabels: { 'app.kubernetes.io/component': 'reward-service' } },
                },
              ],
              ports: [{ port: 'http' }],
            },
          ],
        },
      });
      for (const overlay of ['dev', 'gpu', 'production']) {
        assert.deepEqual(await reached(`deploy/k8s/overlays/${overlay}`), {
          host: undefined,
          key: undefined,
          isService: false,
          isLetIn: false,
          mayAsk: undefined,
        });
      }
    },
  );
});

describe('the keys of the local backend', async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  it(
    'the keys of the local backend are two: actors get only the sampling key',
    { skip },
    async () => {
      assert(typeof render !== 'string');
      const objects = await render('test/deploy/k8s/sample-by-local-backend');
      assert.deepEqual(objects.flatMap(complaints), []);
      const keys = objects
        .flatMap(podsOf)
        .flatMap(({ name, container: { env } }) =>
          (env ?? []).map(({ valueFrom }) => [name, JSON.stringify(valueFrom ?? {})] as const),
        )
        .filter(([, from]) => from.includes('"name":"backend'))
        .map(([name, from]) => `${name} ${/"key":"([^"]+)"/.exec(from)![1]}`);
      assert.deepEqual(keys.sort(), [
        'actor sampling-key',
        'learner api-key',
        'local-backend api-key',
        'local-backend sampling-key',
      ]);
    },
  );
});

describe('the production overlay', async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  it(
    'the production overlay mounts in each pod its own key from offbeat nats-config',
    { skip },
    async () => {
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
    },
  );

  it('the production overlay leaves room on the volumes of NATS, since a server whose disk is full must be restarted', async () => {
    const text = await readFile(join(packageRoot, production, 'nats-values.yaml'), 'utf8');
    const { fileStore } = (
      parse(text) as {
        config: { jetstream: { fileStore: { maxSize: string; pvc: { size: string } } } };
      }
    ).config.jetstream;
    const [limit, volume] = [fileStore.maxSize, fileStore.pvc.size].map((size) => {
      assert.match(size, /^\d+Gi$/);
      return Number.parseInt(size, 10);
    });
    assert(limit! <= 0.95 * volume!, `${limit} of ${volume}`);
  });

  it('the production overlay replicates its streams to three servers', { skip }, async () => {
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

describe('the configuration of TuFT', async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  const example = parse(await readFile(join(packageRoot, tuftExample), 'utf8')) as {
    supported_models: Record<string, number | string | boolean>[];
    checkpoint_dir: string;
    persistence: { mode: string; file_path: string };
  };
  const [model] = example.supported_models as [Record<string, number | string | boolean>];

  it('the example configuration samples with CUDA graphs, trains several sequences at once, and keeps its runs on the volume', () => {
    assert.equal(model['sampling_enforce_eager'], false);
    assert(Number(model['micro_batch_size']) >= 16);
    assert.notEqual(example.persistence.mode, 'DISABLE');
    assert(example.persistence.file_path.startsWith(`${example.checkpoint_dir}/`));
  });

  for (const overlay of ['gpu', 'production']) {
    it(
      `the example configuration admits the adapters and the rank of the overlay ${overlay}`,
      { skip },
      async () => {
        assert(typeof render !== 'string');
        const set = await learnerEnvironment(render, overlay);
        assert(Number(model['max_loras']) >= Number(set['LEARNER_MAX_STEPS_OFF_POLICY']) + 2);
        assert(Number(model['max_lora_rank']) >= Number(set['LEARNER_LORA_RANK']));
        assert.equal(model['model_name'], set['LEARNER_MODEL_NAME']);
        assert.equal(model['model_path'], set['LEARNER_MODEL_DIR']);
      },
    );

    it(
      `the example configuration matches docs/tuft.md in learning rate, rank and max tokens, in the overlay ${overlay}`,
      { skip },
      async () => {
        assert(typeof render !== 'string');
        const page = await readFile(join(packageRoot, 'docs/tuft.md'), 'utf8');
        const ofPage = (flag: string) => Number(new RegExp(`--${flag} (\\S+)`).exec(page)![1]);
        const set = await learnerEnvironment(render, overlay);
        assert.equal(Number(set['LEARNER_LEARNING_RATE']), ofPage('learning-rate'));
        assert.equal(Number(set['LEARNER_LORA_RANK']), ofPage('lora-rank'));
        assert.equal(Number(set['LEARNER_MAX_TOKENS']), ofPage('max-tokens'));
      },
    );
  }
});

describe("the gpu overlay's own nats-server", async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  it(
    "the gpu overlay's nats-server has a configuration that nats-server accepts, with the keys from offbeat nats-config",
    { skip },
    async () => {
      assert(typeof render !== 'string');
      const objects = await render('deploy/k8s/overlays/gpu');
      const { container, pod } = objects.flatMap(podsOf).find(({ name }) => name === 'nats')!;
      const mounts = Object.fromEntries(
        container.volumeMounts!.map(({ name, mountPath }) => [name, mountPath]),
      );
      assert.deepEqual([mounts['config'], mounts['access']], ['/etc/nats', '/etc/nats-access']);
      const wanted = pod.volumes!.find(({ name }) => name === 'access')!.secret!.secretName;
      assert.equal(wanted, 'nats-access');
      const config = objects.find(({ metadata }) => metadata.name.startsWith('nats-'));
      const text = (config!['data'] as { 'nats.conf': string })['nats.conf'];

      const root = await mkdtemp(join(tmpdir(), 'offbeat-k8s-'));
      try {
        const access = join(root, 'nats-access'); // next to the configuration, as in the pod
        const words = ['--run', 'countdown-qwen3-4b', '--actors', '2', '--out', access];
        const hosts = ['--tls-hosts', 'nats,localhost', '--tls-folder', access];
        const keys = await runOffbeat(['nats-config', ...words, ...hosts], root);
        assert.equal(keys.code, 0, keys.out);
        await mkdir(join(root, 'nats'));
        const path = join(root, 'nats/nats.conf');
        // nats-server 2.9, which Debian 12 has, does not know sync_interval.
        await writeFile(
          path,
          text.replace('/data', join(root, 'data')).replace(/sync_interval.*/, ''),
        );
        const program = process.env['OFFBEAT_NATS_SERVER'] ?? 'nats-server';
        const { code, output } = await runCommand(program, ['--config', path, '-t'], {
          cwd: root,
          timeoutMs: 30_000,
        });
        assert.equal(code, 0, output);
        await rm(access, { recursive: true });
        const without = await runCommand(program, ['--config', path, '-t'], {
          cwd: root,
          timeoutMs: 30_000,
        });
        assert.notEqual(without.code, 0); // does not start without access control
      } finally {
        await rm(root, { recursive: true });
      }
    },
  );
});

async function learnerEnvironment(
  render: (folder: string) => Promise<KubernetesObject[]>,
  overlay: string,
): Promise<Record<string, string>> {
  const objects = await render(`deploy/k8s/overlays/${overlay}`);
  const { container } = objects.flatMap(podsOf).find(({ name }) => name === 'learner')!;
  const maps = objects.filter(({ kind }) => kind === 'ConfigMap');
  return environmentOf(container, maps);
}

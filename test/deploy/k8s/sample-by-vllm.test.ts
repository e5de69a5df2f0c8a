import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { findExecutables, searchFolders } from '../../../cli/nats-server/binary.js';
import { runCommand } from '../../../cli/run-command.js';
import { services } from '../../../cli/services.js';
import { packageRoot } from '../../../shared/base/package-root.js';
import { loadConfig } from '../../../shared/service/config.js';
import { complaints, kustomize } from '../../support/kubernetes.js';
import {
  environmentOf,
  podsOf,
  referencesOf,
  scalingOf,
  type Workload,
} from '../../support/workloads.js';

/** Weights of an adapter of rank 32 on all linear layers of Qwen3-4B, the model of the overlays. */
const adapterBytes = 66.1e6 * 4; // float32
const textOf = (path: string) => readFile(join(packageRoot, path), 'utf8');

const render = await kustomize();
const skip = typeof render === 'string' && render;

describe('the component whose actors sample on vLLM', { timeout: 120_000, skip }, async () => {
  assert(typeof render !== 'string');
  const objects = await render('test/deploy/k8s/sample-by-vllm');
  const maps = objects.filter(({ kind }) => kind === 'ConfigMap');
  const found = objects.flatMap(podsOf);
  const { pod, container: actor } = found.find(({ name }) => name === 'actor')!;
  const [engine] = pod.initContainers!;
  assert(engine !== undefined);
  const volume = (name: string) => pod.volumes!.find((each) => each.name === name)!;
  const actorSet = environmentOf(actor, maps);
  const learnerSet = environmentOf(found.find(({ name }) => name === 'learner')!.container, maps);
  const engineSet = environmentOf(engine, maps);
  const [model, ...flags] = engine.args.map((word) =>
    word.replace(/\$\((\w+)\)/g, (_, name: string) => engineSet[name]!),
  );

  it('the component fits the overlay gpu and is valid by the schemas of its APIs', () => {
    assert.deepEqual(objects.flatMap(complaints), []);
    const names = new Set(objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`));
    const byHand = new Set(['PersistentVolumeClaim models']);
    const wanted = referencesOf({ ...pod, volumes: [volume('models')] }, engine);
    assert.deepEqual(
      wanted.filter((name) => !names.has(name) && !byHand.has(name)),
      [],
    );
  });

  it('vLLM is the only sidecar of the actor, on one GPU and with a pinned version', () => {
    assert.deepEqual(
      pod.initContainers!.map(({ name, restartPolicy }) => [name, restartPolicy]),
      [['vllm', 'Always']],
    );
    assert.match(engine.image, /^vllm\/vllm-openai:v\d+\.\d+\.\d+$/);
    const { requests, limits } = engine.resources;
    assert.deepEqual([requests!['nvidia.com/gpu'], limits!['nvidia.com/gpu']], [1, 1]);
    for (const resource of ['memory', 'ephemeral-storage']) {
      assert(requests![resource] !== undefined && limits![resource] !== undefined, resource);
    }
    assert.equal(actor.resources.limits!['nvidia.com/gpu'], undefined);
  });

  it('vLLM starts with the model of the run and the flags of docs/engines.md', async () => {
    const page = await textOf('docs/engines.md');
    const [, words] = /^(?:\w+=\S+ )*vllm serve "\S+" (.*)$/m.exec(page)!;
    const documented = words!.split(/ (?=--)/).map((flag) => flag.replace(' ', '='));
    assert.deepEqual([...flags].sort(), documented.sort());
    assert.deepEqual(engine.command, ['vllm', 'serve']);
    assert.equal(model, learnerSet['LEARNER_MODEL_DIR']);
    assert.equal(engineSet['VLLM_ALLOW_RUNTIME_LORA_UPDATING'], '1');
    assert.equal(engineSet['VLLM_NO_USAGE_STATS'], '1');
    assert.equal(engineSet['HF_HUB_OFFLINE'], '1');
  });

  for (const overlay of ['gpu', 'production']) {
    it(`vLLM has slots and rank enough for the overlay ${overlay}`, async () => {
      const there = await render(`deploy/k8s/overlays/${overlay}`);
      const learner = there.flatMap(podsOf).find(({ name }) => name === 'learner')!.container;
      const set = environmentOf(
        learner,
        there.filter(({ kind }) => kind === 'ConfigMap'),
      );
      const bound = Number(set['LEARNER_MAX_STEPS_OFF_POLICY']);
      assert(valueOf('--max-loras') >= bound + 2, `${valueOf('--max-loras')} slots of ${bound}`);
      assert(valueOf('--max-lora-rank') >= Number(set['LEARNER_LORA_RANK']));
    });
  }

  it('the actor samples on the vLLM of its own pod, which listens only there, and has no key of the backend', async () => {
    const config = loadConfig(await services.actor.config(), 'actor', [], withoutPodName(actorSet));
    assert.equal(config.sampler, 'vllm');
    assert.equal(config.engineUrl, `http://127.0.0.1:${valueOf('--port')}`);
    assert(flags.includes('--host=127.0.0.1'));
    assert.deepEqual([config.backendUrl, config.apiKey], [undefined, undefined]);
  });

  it('actor and vLLM see the adapters under one path, in memory, with room for two sets and for the actor', () => {
    const seen = [actor, engine].map(({ volumeMounts }) =>
      volumeMounts!.find(({ name }) => name === 'adapters'),
    );
    const path = actorSet['ACTOR_ADAPTER_DIR'];
    assert.deepEqual(
      seen.map((mount) => [mount?.mountPath, mount?.readOnly ?? false]),
      [
        [path, false],
        [path, true],
      ],
    );
    const { medium, sizeLimit } = volume('adapters').emptyDir!;
    assert.equal(medium, 'Memory');
    const room = bytesOf(sizeLimit);
    assert(room >= 2 * valueOf('--max-loras') * adapterBytes, sizeLimit);
    assert(bytesOf(actor.resources.limits!['memory']) >= room + 4 * adapterBytes);
    assert(bytesOf(engine.resources.limits!['memory']) >= bytesOf('24Gi'));
  });

  it('vLLM runs as a user without rights and can write to nothing of the models', () => {
    assert.deepEqual(engine.securityContext, {
      runAsNonRoot: true,
      runAsUser: 2000,
      runAsGroup: 0,
      allowPrivilegeEscalation: false,
      capabilities: { drop: ['ALL'] },
    });
    const models = engine.volumeMounts!.find(({ name }) => name === 'models');
    assert.equal(models?.readOnly, true);
    assert(model!.startsWith(`${models.mountPath}/`));
    for (const { name } of engine.volumeMounts!) {
      const { emptyDir } = volume(name);
      assert(emptyDir === undefined || emptyDir.sizeLimit !== undefined, name);
    }
  });

  it('vLLM is probed inside its pod, where it listens, and stops after the actor', () => {
    const probes = [engine.startupProbe, engine.livenessProbe, engine.readinessProbe] as Probe[];
    for (const { exec } of probes) assert.deepEqual(exec.command, probes[0]!.exec.command);
    assert.match(probes[0]!.exec.command.join(' '), /127\.0\.0\.1:18000\/health/);
    const [{ periodSeconds, failureThreshold }] = probes as [Probe];
    assert(periodSeconds * failureThreshold >= 600); // it loads its model and captures CUDA graphs
    assert(pod.terminationGracePeriodSeconds! >= 60);
  });

  it('the probe succeeds while vLLM is healthy, and fails if it is not or is gone', async (t) => {
    const [python] = await findExecutables('python3', searchFolders(process.env['PATH']));
    if (python === undefined) {
      t.skip('no python3 on PATH');
      return;
    }
    const answers = [200, 503];
    const server = createServer((request, response) => {
      response.writeHead(request.url === '/health' ? answers.shift()! : 404).end();
    }).listen(0, '127.0.0.1');
    t.after(() => server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const [, ...words] = (engine.livenessProbe as Probe).exec.command;
    const probe = async () => {
      const asked = words.map((word) => word.replace('18000', `${port}`));
      const options = { cwd: packageRoot, timeoutMs: 30_000 };
      return (await runCommand(python, asked, options)).code;
    };
    assert.equal(await probe(), 0);
    assert.notEqual(await probe(), 0);
    server.close();
    await once(server, 'close');
    assert.notEqual(await probe(), 0);
  });

  it('KEDA scales these actors by tickets, as many for each as it samples at once', () => {
    const { scaleTargetRef, triggers } = scalingOf(objects, 'actor');
    assert.equal(triggers[0]!.metadata['lagThreshold'], actorSet['ACTOR_CONCURRENCY']);
    assert.equal(triggers[0]!.metadata['consumer'], 'actors-train');
    assert.equal(triggers[1]!.metadata['targetValue'], actorSet['ACTOR_CONCURRENCY']);
    const target = objects.find(
      ({ kind, metadata }) => kind === scaleTargetRef.kind && metadata.name === 'actor',
    ) as unknown as Workload;
    assert.equal(target.spec.replicas, undefined);
  });

  it('TuFT only trains then: on one GPU, with one more line of its configuration', async () => {
    const { container } = found.find(({ name }) => name === 'tuft')!;
    const { requests, limits } = container.resources;
    assert.deepEqual([requests!['nvidia.com/gpu'], limits!['nvidia.com/gpu']], [1, 1]);
    const example = await textOf('deploy/k8s/components/tuft/tuft_config.example.yaml');
    const capabilities = (text: string): unknown =>
      (parse(text) as { supported_models: { capabilities?: unknown }[] }).supported_models[0]
        ?.capabilities;
    assert.equal(capabilities(example), undefined); // both
    assert.deepEqual(capabilities(example.replace('# capabilities', 'capabilities')), ['training']);
  });

  it('a Deployment of such actors replaces a pod only after its GPU is free', async () => {
    const there = await render('test/deploy/k8s/sample-by-vllm-without-keys');
    assert.deepEqual(there.flatMap(complaints), []);
    const { spec } = there.find(
      ({ kind, metadata }) => `${kind} ${metadata.name}` === 'Deployment actor',
    ) as unknown as { spec: { strategy: { rollingUpdate: object } } };
    assert.deepEqual(spec.strategy.rollingUpdate, { maxSurge: 0, maxUnavailable: 1 });
    const sidecars = there.flatMap(podsOf).find(({ name }) => name === 'actor')!.pod.initContainers;
    assert.deepEqual(
      sidecars?.map(({ args }) => args),
      [engine.args],
    );
  });

  function valueOf(flag: string): number {
    const [, value] = flags.map((each) => each.split('=')).find(([name]) => name === flag)!;
    return Number(value);
  }
});

interface Probe {
  readonly exec: { readonly command: readonly string[] };
  readonly periodSeconds: number;
  readonly failureThreshold: number;
}

function bytesOf(quantity: unknown): number {
  const [, number, unit] = /^(\d+)(Mi|Gi)$/.exec(String(quantity))!;
  return Number(number) * 2 ** (unit === 'Gi' ? 30 : 20);
}

/** Without the variable that the name of the actor is made of. */
function withoutPodName(set: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(set).filter(([name]) => name !== 'POD_NAME'));
}

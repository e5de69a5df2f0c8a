import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { services, type ServiceName } from '../../../cli/services.js';
import { environmentName, loadConfig } from '../../../shared/service/config.js';
import { givenUpCode, userErrorCode } from '../../../shared/base/exit-codes.js';
import { Connections } from '../../../learner/settings/connections.js';
import { runAccount } from '../../../shared/broker/permissions.js';
import { runNames } from '../../../shared/broker/names.js';
import { packageRoot } from '../../../shared/base/package-root.js';
import { complaints, kustomize, type KubernetesObject } from '../../support/kubernetes.js';
import {
  environmentOf,
  fateOf,
  type Job,
  podsOf,
  referencesOf,
  type ScaledObject,
  type Workload,
} from '../../support/workloads.js';

const folder = 'deploy/k8s';
const overlays = (await readdir(join(packageRoot, folder, 'overlays'))).sort();

const render = await kustomize();
const skip = typeof render === 'string' && render;

describe('the rendered overlays', { timeout: 120_000, skip }, async () => {
  assert(typeof render !== 'string');
  for (const overlay of overlays) {
    const objects = await render(`${folder}/overlays/${overlay}`);
    const of = (kind: string) => objects.filter((object) => object.kind === kind);
    const pods = objects.flatMap(podsOf);
    const ours = pods.filter(({ container }) => container.image.includes('/offbeat:'));

    describe(overlay, () => {
      it('the overlay is valid by the schemas of its APIs', () => {
        assert(objects.length > 15);
        assert.deepEqual(objects.flatMap(complaints), []);
      });

      it('the overlay has one namespace with enforced pod security', () => {
        const [namespace] = of('Namespace');
        const level = namespace!.metadata.labels?.['pod-security.kubernetes.io/enforce'];
        assert.match(level!, /^(restricted|baseline)$/);
        const elsewhere = objects.filter(
          ({ kind, metadata }) =>
            kind !== 'Namespace' && metadata.namespace !== namespace!.metadata.name,
        );
        assert.deepEqual(elsewhere, []);
      });

      it('the overlay has a single learner and separate workers', () => {
        const learners = pods.filter(({ labels }) => labels[component] === 'learner');
        assert.deepEqual(
          learners.map(({ name }) => name),
          ['learner'],
        );
        const { spec } = of('Job')[0] as unknown as Job;
        assert.equal(spec.podReplacementPolicy, 'Failed'); // never while an old one is terminating
        assert.deepEqual([spec.parallelism ?? 1, spec.completions ?? 1], [1, 1]);
        const services = ours.map(({ container }) => container.args[0]).sort();
        for (const service of ['actor', 'learner', 'reward-service']) {
          assert.equal(services.filter((name) => name === service).length, 1);
        }
      });

      it('the overlay fails the learner job on permanent errors and replaces a stopped or crashed learner', () => {
        const job = of('Job')[0] as unknown as Job;
        assert.equal(job.spec.template.spec.restartPolicy, 'Never'); // required by podFailurePolicy
        const { container } = pods.find(({ name }) => name === 'learner')!;
        const set = environmentOf(container, of('ConfigMap'));
        const stopped = Number(set['LEARNER_STOPPED_EXIT_CODE']);
        assert.equal(fateOf(job, 0), 'complete');
        assert.equal(fateOf(job, userErrorCode), 'failed');
        assert.equal(fateOf(job, givenUpCode), 'failed');
        assert.equal(fateOf(job, givenUpCode, true), 'failed');
        assert.equal(fateOf(job, stopped), 'replaced for free');
        assert.equal(fateOf(job, 137, true), 'replaced for free');
        for (const crash of [1, 134, 137, 139]) assert.equal(fateOf(job, crash), 'replaced');
        assert(job.spec.backoffLimit >= 20);
      });

      it('the overlay lets the learner wait longer than a backend may take to start', () => {
        const backend = pods.find(({ labels }) => labels[component] === 'backend')!;
        const { periodSeconds, failureThreshold } = backend.container.startupProbe as Probe;
        const { container } = pods.find(({ name }) => name === 'learner')!;
        const set = environmentOf(container, of('ConfigMap'));
        const waitSeconds = Number(set['LEARNER_START_PATIENCE_SECONDS']);
        assert(waitSeconds > periodSeconds * failureThreshold, `${waitSeconds} s`);
      });

      it('the overlay lets no service give up on NATS while it is being installed', () => {
        for (const service of ['actor', 'learner', 'reward-service']) {
          const { container } = ours.find((each) => each.container.args[0] === service)!;
          const set = environmentOf(container, of('ConfigMap'));
          const name = `${service.toUpperCase().replace('-', '_')}_START_PATIENCE_SECONDS`;
          assert(Number(set[name]) >= 1_800, `${name} is ${set[name]}`);
        }
      });

      it('the overlay runs our containers without root, capabilities or a writable root filesystem', () => {
        for (const { pod, container } of ours) {
          assert.equal(pod.securityContext?.runAsNonRoot, true);
          assert.equal(pod.automountServiceAccountToken, false);
          assert.deepEqual(container.securityContext, {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          });
        }
      });

      it('the overlay gives every container probes, requests, limits and a pinned image', () => {
        for (const { container } of pods) {
          for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'] as const) {
            assert(container[probe] !== undefined, `${container.name} has no ${probe}`);
          }
          const { requests, limits } = container.resources;
          for (const resource of ['memory', 'ephemeral-storage']) {
            assert(requests?.[resource] !== undefined, `${container.name} requests no ${resource}`);
            assert(
              limits?.[resource] !== undefined,
              `${container.name} has no limit of ${resource}`,
            );
          }
          assert(requests?.['cpu'] !== undefined);
          const isPinned = /:\d+\.\d+\.\d+(-\w+)?$|@sha256:[0-9a-f]{64}$/.test(container.image);
          assert(isPinned, container.image);
        }
      });

      it('the overlay probes every container by HTTP, TuFT at a path that requires no key', () => {
        for (const { container } of pods) {
          for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'] as const) {
            const { httpGet } = container[probe] as { httpGet?: { path: string } };
            assert.match(httpGet?.path ?? '', /healthz|readyz/, `${probe} of ${container.name}`);
          }
        }
        // A bare /healthz of nats-server fails for good if its volume has an account of earlier keys.
        const nats = pods.find(({ name }) => name === 'nats')?.container;
        for (const probe of ['startupProbe', 'livenessProbe'] as const) {
          const { httpGet } = (nats?.[probe] ?? {}) as { httpGet?: { path: string } };
          assert.equal(httpGet?.path, nats && '/healthz?js-enabled-only=true');
        }
        const tuft = pods.find(({ name }) => name === 'tuft');
        const { httpGet } = (tuft?.container.startupProbe ?? {}) as { httpGet?: { path: string } };
        assert.equal(httpGet?.path, overlay === 'dev' ? undefined : '/api/v1/healthz');
      });

      it('the overlay limits every emptyDir and changes the owner of volumes only when required', () => {
        for (const { name, pod } of pods) {
          for (const { name: volume, emptyDir } of pod.volumes ?? []) {
            assert(emptyDir === undefined || emptyDir.sizeLimit !== undefined, `${name} ${volume}`);
          }
          const { fsGroup, fsGroupChangePolicy } = pod.securityContext ?? {};
          assert(fsGroup === undefined || fsGroupChangePolicy === 'OnRootMismatch', name);
        }
      });

      it('the overlay has one disruption budget for each workload', () => {
        const budgets = of('PodDisruptionBudget') as unknown as { spec: { selector: Selector } }[];
        for (const { name, labels } of pods) {
          const selecting = budgets.filter(({ spec }) => isSelected(spec.selector, labels));
          assert.equal(selecting.length, 1, `${name} has ${selecting.length} budgets`);
        }
      });

      it('the overlay requests little CPU for actors that sample by the backend', () => {
        const { container } = pods.find(({ name }) => name === 'actor')!;
        const { ACTOR_SAMPLER: sampler } = environmentOf(container, of('ConfigMap'));
        const cpu = container.resources.requests!['cpu'];
        assert.equal(cpu, sampler === 'tinker' ? '50m' : '1');
      });

      it('the overlay permits DNS queries to the servers of all supported clusters', () => {
        const policies = of('NetworkPolicy') as unknown as NetworkPolicy[];
        const rule = policies
          .flatMap(({ spec }) => spec.egress ?? [])
          .find(({ ports }) => ports?.some(({ port }) => port === 53));
        assert.deepEqual(
          rule!.ports!.map(({ port, protocol }) => `${port} ${protocol}`),
          ['53 UDP', '53 TCP', '5353 UDP', '5353 TCP'], // 5353 for OpenShift
        );
        const peers = JSON.stringify(rule!.to);
        for (const peer of ['"k8s-app":"kube-dns"', '"openshift-dns"', '"169.254.20.10/32"']) {
          assert(peers.includes(peer), `${peer} is not among ${peers}`);
        }
      });

      it('the overlay requires NATS keys and TLS except in the dev overlay', () => {
        const seeds = pods.flatMap(({ container }) =>
          (container.env ?? []).filter(({ name }) => name.endsWith('_NKEY_SEED_FILE')),
        );
        assert.equal(seeds.length, overlay === 'dev' ? 0 : 3);
        for (const { container } of ours) {
          const set = Object.entries(environmentOf(container, of('ConfigMap')));
          const [, url] = set.find(([name]) => name.endsWith('_NATS_URL')) ?? [];
          if (url !== undefined) assert.match(url, overlay === 'dev' ? /^nats:/ : /^tls:/);
        }
      });

      it('the overlay links its alerts to the configured documentation', () => {
        const map = of('ConfigMap').find(({ metadata }) => metadata.name.startsWith('run-'));
        const { DOCS_URL: docs } = map!['data'] as { DOCS_URL: string };
        const text = JSON.stringify(of('PrometheusRule'));
        const urls = [...text.matchAll(/"runbook_url":"([^"]+)"/g)].map(([, url]) => url!);
        assert.equal(urls.length > 0, overlay !== 'dev');
        for (const url of urls) assert(url.startsWith(`${docs}/monitoring.md#`), url);
      });

      it('the overlay has grace periods longer than the shutdown of its services', () => {
        const usualPatience = Connections.shape.stopPatienceSeconds.parse(undefined);
        for (const { name, pod, container } of pods) {
          const grace = pod.terminationGracePeriodSeconds!;
          const set = environmentOf(container, of('ConfigMap'));
          const patience = Number(set['LEARNER_STOP_PATIENCE_SECONDS'] ?? usualPatience);
          assert(grace >= (name === 'learner' ? patience + 10 : 30), `${name}: ${grace} s`);
        }
      });

      it('the overlay references only objects that it contains or that docs/kubernetes.md creates by hand', async () => {
        const byHand = await readFile(join(packageRoot, 'docs/kubernetes.md'), 'utf8');
        const names = new Set(objects.flatMap(({ kind, metadata }) => `${kind} ${metadata.name}`));
        for (const { pod, container } of pods) {
          for (const wanted of referencesOf(pod, container)) {
            const [kind, name] = wanted.split(' ');
            const isThere = names.has(wanted) || byHand.includes(`\`${name!}\``);
            assert(isThere, `${container.name} needs ${kind} ${name}`);
          }
          const volumes = new Set(pod.volumes?.map(({ name }) => name));
          for (const { name } of container.volumeMounts ?? []) {
            assert(volumes.has(name) || name === 'data', `${container.name} mounts ${name}`);
          }
        }
      });

      it('the overlay sets only known settings, to valid values', async () => {
        for (const { container } of ours) {
          const service = container.args[0] as ServiceName;
          const schema = await services[service].config();
          const known = Object.keys(schema.shape).map((key) => environmentName(service, key));
          const set = environmentOf(container, of('ConfigMap'));
          assert.deepEqual(
            Object.keys(set).filter((name) => !known.includes(name) && name !== 'POD_NAME'),
            [],
          );
          loadConfig(schema, service, [], set); // throws on an invalid value
        }
      });

      it('the overlay has budgets, policies, monitors and services that select pods', () => {
        const labels = pods.map(({ labels }) => labels);
        const selects = (selector: Selector): boolean =>
          labels.some((pod) => isSelected(selector, pod));
        for (const { spec } of of('PodMonitor') as unknown as PodMonitor[]) {
          const drops = spec.podMetricsEndpoints
            .flatMap(({ relabelings }) => relabelings)
            .filter(({ action }) => action === 'drop');
          assert.deepEqual(
            drops.map(({ sourceLabels, regex }) => [sourceLabels, regex]),
            [[['__meta_kubernetes_pod_phase'], 'Pending']],
          );
        }
        for (const kind of ['PodDisruptionBudget', 'PodMonitor']) {
          for (const { spec } of of(kind) as unknown as { spec: { selector: Selector } }[]) {
            assert(selects(spec.selector));
          }
        }
        for (const { metadata, spec } of of('NetworkPolicy') as unknown as NetworkPolicy[]) {
          assert(selects(spec.podSelector), metadata.name);
          const rules = [...(spec.ingress ?? []), ...(spec.egress ?? [])];
          for (const { podSelector, namespaceSelector, ipBlock } of rules.flatMap((rule) => [
            ...(rule.from ?? []),
            ...(rule.to ?? []),
          ])) {
            const isOfOthers = namespaceSelector !== undefined || ipBlock !== undefined;
            assert(isOfOthers || selects(podSelector!), `a peer of ${metadata.name}`);
          }
        }
        for (const { spec } of of('Service') as unknown as {
          spec: { selector: Record<string, string> };
        }[]) {
          assert(selects({ matchLabels: spec.selector }));
        }
        assert(of('PodDisruptionBudget').length >= 3);
        assert(of('NetworkPolicy').length >= 5);
      });

      it('the overlay uses the same run name everywhere', () => {
        const map = of('ConfigMap').find(({ metadata }) => metadata.name.startsWith('run-'));
        const { RUN: run } = map!['data'] as { RUN: string };
        for (const { labels } of ours) assert.equal(labels['app.kubernetes.io/instance'], run);
        for (const object of of('ScaledObject')) {
          const { triggers } = (object as unknown as ScaledObject).spec;
          const [{ metadata }] = triggers as [ScaledObject['spec']['triggers'][0]];
          const names = runNames(run);
          const known = (['tickets.train', 'rollouts'] as const).map((source) => {
            const { stream, durable } = names.consumer(source);
            return `${stream} ${durable}`;
          });
          assert(known.includes(`${metadata['stream']} ${metadata['consumer']}`));
          assert.equal(metadata['account'], runAccount(run));
        }
      });

      it('the overlay scales only actors, by tickets, and the reward service, by rollouts', async () => {
        const scaled = of('ScaledObject') as unknown as ScaledObject[];
        if (overlay === 'dev') {
          assert.deepEqual(scaled, []);
          return;
        }
        const consumers = scaled.map(({ spec: { scaleTargetRef, triggers } }) => [
          scaleTargetRef.name,
          triggers[0]!.metadata['consumer'],
        ]);
        assert.deepEqual(consumers, [
          ['actor', 'actors-train'],
          ['reward-service', 'reward'],
        ]);
        // The learner's demand, through a Service that selects its pod, at the port of its metrics.
        const [, demand] = scaled[0]!.spec.triggers;
        const { namespace } = (scaled[0] as unknown as KubernetesObject).metadata;
        assert.equal(demand!.metadata['url'], `http://learner.${namespace}:9090/metrics`);
        assert.equal(demand!.metadata['valueLocation'], 'rl_ticket_demand');
        const issuer = await readFile(
          join(packageRoot, 'learner/tickets/ticket-issuer.ts'),
          'utf8',
        );
        assert(issuer.includes("name: 'rl_ticket_demand'"));
        assert.equal(
          demand!.metadata['targetValue'],
          scaled[0]!.spec.triggers[0]!.metadata['lagThreshold'],
        );
        assert(of('Service').some(({ metadata }) => metadata.name === 'learner'));
        for (const { spec } of scaled) {
          const target = objects.find(
            ({ kind, metadata }) =>
              kind === (spec.scaleTargetRef.kind ?? 'Deployment') &&
              metadata.name === spec.scaleTargetRef.name,
          ) as unknown as Workload;
          assert.equal(target.spec.replicas, undefined); // KEDA sets it
          if (spec.fallback === undefined) continue;
          for (const { metricType } of spec.triggers) assert.equal(metricType, 'AverageValue'); // KEDA 2.17.0 requires it
        }
      });
    });
  }
});

const component = 'app.kubernetes.io/component';

interface PodMonitor {
  readonly spec: {
    readonly podMetricsEndpoints: readonly {
      readonly relabelings: readonly {
        readonly sourceLabels: readonly string[];
        readonly action?: string;
        readonly regex?: string;
      }[];
    }[];
  };
}

interface Probe {
  readonly periodSeconds: number;
  readonly failureThreshold: number;
}

interface Selector {
  readonly matchLabels?: Readonly<Record<string, string>>;
}

interface NetworkPolicy {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly podSelector: Selector;
    readonly ingress?: readonly { readonly from?: readonly Peer[]; readonly to?: undefined }[];
    readonly egress?: readonly {
      readonly to?: readonly Peer[];
      readonly from?: undefined;
      readonly ports?: readonly { readonly port: number; readonly protocol?: string }[];
    }[];
  };
}

interface Peer {
  readonly podSelector?: Selector;
  readonly namespaceSelector?: object;
  readonly ipBlock?: object;
}

function isSelected({ matchLabels = {} }: Selector, labels: Readonly<Record<string, string>>) {
  return Object.entries(matchLabels).every(([key, value]) => labels[key] === value);
}

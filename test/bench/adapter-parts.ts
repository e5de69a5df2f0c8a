/**
 * One process of `npm run bench -- adapters`: the learner with its publisher, over a backend that has each adapter ready; an actor
 * that follows versions, over a sampler that takes no time to load; or a web server as a backend's signed links lead to.
 */
import { mkdir } from 'node:fs/promises';
import { CanaryCheck } from '../../actor/canary-check.js';
import { PolicyFollower } from '../../actor/policy-follower.js';
import { Certificates } from '../../learner/audit/certificates.js';
import { AdapterSupply } from '../../learner/publish/adapter-supply.js';
import { Publisher } from '../../learner/publish/publisher.js';
import { IdleClock } from '../../learner/step/idle-clock.js';
import { createRandom } from '../../shared/base/random.js';
import { TaskScope } from '../../shared/base/task-scope.js';
import type { Broker } from '../../shared/broker/broker.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { encodeSafetensors, type Tensor } from '../../shared/model/safetensors.js';
import { AdapterLoader } from '../../shared/run/adapters/adapter-loader.js';
import { AllowedSources } from '../../shared/run/adapters/allowed-sources.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { FileServer } from '../support/file-server.js';
import { silent } from '../support/log.js';
import { runConfig } from '../support/messages.js';
import { serveCalls } from './bench-process.js';

/** Settings as JSON on the command line of each process. */
export interface AdapterPlane {
  readonly natsUrl: string;
  readonly run: string;
  readonly megabytes: number; // of an adapter in float32, 10⁶ bytes each
  readonly store: string; // --adapter-store
  readonly dtype: 'fp32' | 'bf16';
  readonly sources: string; // --adapter-sources
}

export type AdapterRole = 'learner' | 'actor' | 'web';

const [role, text, name] = process.argv.slice(2) as [AdapterRole, string, string];
const plane = JSON.parse(text) as AdapterPlane;
const scope = new TaskScope();
const { signal } = scope;
const broker = await connectBroker({ ...plane, client: name, log: silent, signal });
const parts = { learner, actor, web };
await parts[role](broker);

async function learner(broker: Broker): Promise<void> {
  await broker.ensureRun({ trainTickets: 8, evalTickets: 8 });
  await new RunConfigStore(broker).put(runConfig({ run: plane.run }));
  if (plane.store.startsWith('/')) await mkdir(plane.store, { recursive: true });
  const file = randomAdapter();
  const downloaded = () => Promise.resolve({ adapter: file, rank: 32, alpha: 64 });
  const idle = new IdleClock(() => performance.now() / 1_000);
  const nothing = () => Promise.resolve(undefined);
  const no = () => Promise.reject(new Error('not part of the bench'));
  const settings = { adapterStore: plane.store, adapterDtype: plane.dtype } as const;
  let url = ''; // of the link
  const run = { saveWeightsForSampler: (at: string) => Promise.resolve(`tinker://bench/${at}`) };
  const saving = {
    ...run,
    saveWeightsExternal: (at: string) => Promise.resolve(`tinker://x/${at}`),
  };
  const external = async () => ({
    ...(await downloaded()),
    link: { url, expiresAt: Date.now() + 3_600_000 },
  });
  const client = {
    ...{ downloadAdapter: downloaded, downloadExternal: external, locateAdapter: nothing },
    ...{
      signLink: no,
      deleteCheckpoint: nothing,
      createSamplingSession: no,
      sampler: () => never(),
    },
  };
  const adapters = new AdapterSupply({
    ...{ client: client, run: saving, idle, signal, log: silent },
    settings: { ...settings, publishAdapters: 'auto' },
    runName: plane.run,
    leases: () => Promise.resolve([]),
  });
  await adapters.open([]);
  const publisher = new Publisher({
    ...{ broker, client: client, run: saving, adapters, idle, log: silent },
    backendSamples: false,
    canaries: { request: () => nothing },
    certificates: new Certificates(),
    versionAudit: { add: () => undefined },
    maxStepsOffPolicy: 0,
    rewinds: [],
    quarantined: () => [],
    consumedBelow: () => 0,
    confirmLead: () => Promise.resolve(),
  });
  serveCalls({
    link: (to: string) => Promise.resolve((url = to)),
    file: () => Promise.resolve(file.byteLength),
    /** @returns ms since the epoch when it began. */
    publish: async (version: number) => {
      file[file.byteLength - 4] = version; // another file each time
      const startedAt = Date.now();
      await publisher.publish(version);
      return startedAt;
    },
    retire: () => publisher.retire([]),
    stored: async () => {
      const { state } = await broker.link.jsm.streams.info(`OBJ_weights_${plane.run}`);
      return state.bytes;
    },
  });
}

async function actor(broker: Broker): Promise<void> {
  await new RunConfigStore(broker).wait(signal);
  const allowed = new AllowedSources(plane.sources, '--adapter-sources');
  const loader = new AdapterLoader({ store: broker.policy, allowed });
  const loadedAt = new Map<number, number>();
  const sampler = {
    ...{ engine: 'bench', admit: () => undefined, drop: () => undefined },
    ...{ trouble: undefined, ready: () => Promise.resolve() },
    load: async (manifest: Parameters<typeof loader.fetchAdapter>[0]) => {
      await loader.fetchAdapter(manifest, signal);
      loadedAt.set(manifest.version, Date.now());
    },
  };
  const canaries = new CanaryCheck(sampler, 'fp32');
  const policies = new PolicyFollower({ store: broker.policy, sampler, canaries, log: silent });
  scope.start((ending) => policies.follow(ending));
  serveCalls({ loadedAt: (version: number) => Promise.resolve(loadedAt.get(version) ?? 0) });
}

async function web(): Promise<void> {
  const server = await FileServer.start(randomAdapter());
  serveCalls({
    serve: (version: number) => {
      server.file[server.file.byteLength - 4] = version;
      server.etag = `"${version}"`;
      return Promise.resolve(server.url);
    },
  });
}

/** Random float32 weights in matrices of 4 MiB, the same in every process. */
function randomAdapter(): Uint8Array {
  const random = createRandom('bench adapter');
  const rows = Math.max(1, Math.round(plane.megabytes / 4.194_304));
  const elements = Math.floor((plane.megabytes * 1e6) / 4 / rows);
  const noise = Float32Array.from({ length: elements }, () => random.next() - 0.5);
  const tensors = Array.from({ length: rows }, (_, i): [string, Tensor] => [
    `base_model.model.layers.${i}.lora_A.weight`,
    { dims: [1, elements], data: noise.map((value) => value * (1 + i / 64)) },
  ]);
  return encodeSafetensors(new Map(tensors));
}

function never(): never {
  throw new Error('not part of the bench');
}

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { accountsText } from '../../cli/nats-server/accounts.js';
import { accessWith, identitiesOf, writeKeys } from '../../cli/nats-server/keys.js';
import { accountsBlock } from '../../cli/nats-server/start.js';
import { freePort } from '../../cli/processes/free-port.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { Identity } from '../../shared/broker/permissions.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import type { EngineTwin } from '../support/engine-twin.js';
import { silent } from '../support/log.js';
import { serveModel } from '../support/model-twin.js';
import { NatsServer } from '../support/nats-server.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { ServiceProcess } from '../support/service-process.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import type { LedgerSight } from './audit-ledger.js';
import { Kept } from './kept.js';
import { publishedBy, type Published } from './nats-frames.js';
import { learnerFlags, type Shape } from './shape.js';
import { Witness } from './witness.js';

export const apiKey = 'tml-chaos-test';
export const modelName = 'base';
/** The actor that samples by an engine server. */
export const engineActor = 'actor-1';
/** Name of the dishonest actor, which has a key like the others. */
export const liarName = 'liar';
const leaseSeconds = 4;

export const networks = ['actors', 'reward', 'learners', 'backend'] as const;
export type Network = (typeof networks)[number];

interface Parts {
  readonly run: string;
  readonly shape: Shape;
  readonly folder: string;
  readonly server: NatsServer;
  readonly keyFolder: string | undefined;
  readonly witness: Witness;
  readonly backendPort: number;
  readonly recorder: RecordingProxy;
  readonly proxies: Readonly<Record<'actors' | 'reward' | 'learner-0' | 'learner-1', TcpProxy>>;
  readonly backendProxy: TcpProxy;
  readonly engine: EngineTwin;
  readonly observer: Broker;
}

/** A whole run as processes, each behind a simulated network, and a witness of all messages. */
export class World implements AsyncDisposable {
  readonly kept = new Map<string, Kept>();
  readonly versions: number[] = []; // seen by an observer
  readonly ledgerSights: LedgerSight[] = []; // each checkpoint that an observer saw, in order
  /** Whether a message from that source is lost on its way to NATS. */
  withholds: (from: string, message: Published) => boolean = () => false;
  /** Files of NATS have been damaged. */
  hasBeenDamaged = false;
  #isJustDamaged = false; // later sights may be older than earlier ones
  readonly #parts: Parts;
  readonly #stop = new AbortController();
  readonly #started: ServiceProcess[] = [];
  #watching: Promise<unknown> = Promise.resolve();

  private constructor(parts: Parts) {
    this.#parts = parts;
  }

  static async start(
    run: string,
    shape: Shape,
    report: (line: string) => void,
    services: ServiceNames = everyService,
  ): Promise<World> {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-chaos-'));
    const identities = identitiesOf([...services.filter(isActor), liarName]);
    const keyFolder = shape.withKeys ? join(folder, 'keys') : undefined;
    const users = keyFolder === undefined ? [] : await writeKeys(keyFolder, run, identities);
    const configuration = keyFolder === undefined ? '' : accountsBlock(accountsText(run, users));
    const server = await NatsServer.start({ configuration });
    const witness = new Witness(run, shape.groupSize);
    const backendPort = await freePort();
    const recorder = await RecordingProxy.before(`http://127.0.0.1:${backendPort}`, (exchange) => {
      witness.hearExchange(exchange);
    });
    const toNats = (from: keyof Parts['proxies']) =>
      TcpProxy.before(server.port, () =>
        publishedBy((message) => {
          witness.hearPublished(message);
          return !world.withholds(from, message);
        }),
      );
    const proxies = {
      actors: await toNats('actors'),
      reward: await toNats('reward'),
      'learner-0': await toNats('learner-0'),
      'learner-1': await toNats('learner-1'),
    };
    const backendProxy = await TcpProxy.before(Number(new URL(recorder.url).port));
    const observer = await connectAs({ role: 'operator' }, { run, port: server.port, keyFolder });
    const engine = await serveModel(shape.engine, embeddedModelPath);
    const places = {
      ...{ folder, server, keyFolder, backendPort, recorder, proxies, backendProxy, engine },
    };
    const world: World = new World({ run, shape, witness, observer, ...places });
    world.#begin(report, services);
    return world;
  }

  get run(): string {
    return this.#parts.run;
  }
  get shape(): Shape {
    return this.#parts.shape;
  }
  get server(): NatsServer {
    return this.#parts.server;
  }
  get witness(): Witness {
    return this.#parts.witness;
  }
  /** A client with all rights, connected without a simulated network. */
  get observer(): Broker {
    return this.#parts.observer;
  }
  /** Where `engineActor` samples: the protocol of vLLM or SGLang over the real model, in this process. */
  get engine(): EngineTwin {
    return this.#parts.engine;
  }
  get folder(): string {
    return this.#parts.folder;
  }
  get checkpointFolder(): string {
    return join(this.folder, 'checkpoints');
  }

  /** The proxies of a network: learners have one each. */
  network(name: Network): readonly TcpProxy[] {
    const { proxies, backendProxy } = this.#parts;
    if (name === 'backend') return [backendProxy];
    return name === 'learners' ? [proxies['learner-0'], proxies['learner-1']] : [proxies[name]];
  }

  /** The network between one of the learners and NATS. */
  networkOf(learner: string): TcpProxy {
    return this.#parts.proxies[learner === 'learner-1' ? 'learner-1' : 'learner-0'];
  }

  /** The learner with the lease; undefined if none has it or nats-server does not answer in time. */
  async leader(): Promise<Kept | undefined> {
    const asked = this.observer.ledger.leader().catch(() => undefined);
    const lease = await Promise.race([asked, sleep(1_000)]);
    return lease === undefined ? undefined : this.kept.get(lease.holder);
  }

  /** Connects as one of the run's identities through the network of the actors. */
  connect(identity: Identity): Promise<Broker> {
    const { run, keyFolder, proxies } = this.#parts;
    return connectAs(identity, { run, keyFolder, port: proxies.actors.port });
  }

  /** A learner; with a limit it ends by itself. */
  learner(name: string, maxSteps?: number): ServiceProcess {
    const backend = this.network('backend')[0]!;
    return this.#service('learner', this.networkOf(name), { role: 'learner' }, [
      `--name=${name}`,
      `--lease-seconds=${leaseSeconds}`,
      `--backend-url=http://127.0.0.1:${backend.port}`,
      ...[`--api-key=${apiKey}`, `--model-name=${modelName}`, '--checkpoint-every-steps=3'],
      ...learnerFlags(this.shape),
      `--run-dir=${this.runDir(name)}`,
      ...(maxSteps === undefined ? [] : [`--max-steps=${maxSteps}`]),
    ]);
  }

  /** The folder of a learner's files. */
  runDir(learner: string): string {
    return join(this.folder, learner);
  }

  /** Records that files of NATS were damaged. */
  damaged(): void {
    this.hasBeenDamaged = this.#isJustDamaged = true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { observer, proxies, backendProxy, recorder, engine, server } = this.#parts;
    this.#stop.abort();
    await Promise.all([...this.kept.values()].map((each) => each.letGo()));
    await Promise.all(this.#started.map((process) => process[Symbol.asyncDispose]()));
    await this.#watching;
    await observer[Symbol.asyncDispose]();
    for (const proxy of [...Object.values(proxies), backendProxy]) {
      await proxy[Symbol.asyncDispose]();
    }
    await recorder[Symbol.asyncDispose]();
    await engine[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }

  #begin(report: (line: string) => void, services: ServiceNames): void {
    for (const name of services) {
      this.kept.set(name, new Kept(name, () => this.#startService(name), report));
    }
    this.#watching = Promise.all([this.#watchVersions(), this.#watchLedger()]);
  }

  #startService(name: ServiceNames[number]): ServiceProcess {
    const { proxies, backendPort } = this.#parts;
    if (name === 'backend') {
      return this.#start('local-backend', [
        ...[`--port=${backendPort}`, `--api-key=${apiKey}`, `--model-name=${modelName}`],
        ...[`--checkpoint-dir=${this.checkpointFolder}`, '--threads=1'],
        `--model-dir=${embeddedModelPath}`,
      ]);
    }
    if (name === 'reward') {
      return this.#service('reward-service', proxies.reward, { role: 'reward' }, ['--name=reward']);
    }
    if (!isActor(name)) return this.learner(name);
    const identity = { role: 'actor', actor: name } as const;
    return this.#service('actor', proxies.actors, identity, [
      `--name=${name}`,
      ...(name === engineActor ? this.#engineFlags : []),
    ]);
  }

  get #engineFlags(): string[] {
    return [
      ...[`--sampler=${this.shape.engine}`, `--engine-url=${this.engine.url}`],
      '--sampler-class=fp32',
      `--adapter-dir=${join(this.folder, 'adapters')}`,
    ];
  }

  async #watchVersions(): Promise<void> {
    const { signal } = this.#stop;
    await new RunConfigStore(this.observer).wait(signal).catch(() => undefined);
    for await (const { version } of this.observer.policy.watch(signal)) {
      // After a connection break the watcher may report the same version twice.
      if (version !== this.versions.at(-1)) this.versions.push(version);
    }
  }

  async #watchLedger(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const read = this.observer.ledger.read().catch(() => undefined);
      const checkpoint = await Promise.race([read, sleep(2_000, undefined, { ref: false })]);
      const before = this.ledgerSights.at(-1);
      if (checkpoint !== undefined && checkpoint.statePath !== before?.statePath) {
        const { step, statePath } = checkpoint;
        this.ledgerSights.push({ step, statePath, isAfterDamage: this.#isJustDamaged });
        this.#isJustDamaged = false;
      }
      await sleep(100, undefined, { signal }).catch(() => undefined);
    }
  }

  #service(
    service: string,
    network: TcpProxy,
    identity: Identity,
    flags: readonly string[],
  ): ServiceProcess {
    const { run, keyFolder } = this.#parts;
    const { natsNkeySeedFile } = accessWith(keyFolder, identity);
    return this.#start(service, [
      `--nats-url=nats://127.0.0.1:${network.port}`,
      ...(natsNkeySeedFile === undefined ? [] : [`--nats-nkey-seed-file=${natsNkeySeedFile}`]),
      ...[`--run=${run}`, `--model-dir=${embeddedModelPath}`],
      ...flags,
    ]);
  }

  #start(service: string, flags: string[]): ServiceProcess {
    const clock = new URL('./jumping-clock.js', import.meta.url).href;
    const process = new ServiceProcess(service, flags, { NODE_OPTIONS: `--import=${clock}` });
    this.#started.push(process);
    return process;
  }
}

const everyService = [
  ...(['backend', 'learner-0', 'learner-1'] as const),
  ...(['reward', 'actor-0', 'actor-1'] as const),
];
type ServiceNames = readonly (typeof everyService)[number][];

function isActor(name: ServiceNames[number]): name is 'actor-0' | 'actor-1' {
  return name.startsWith('actor');
}

function connectAs(
  identity: Identity,
  { run, port, keyFolder }: { run: string; port: number; keyFolder: string | undefined },
): Promise<Broker> {
  return connectBroker({
    natsUrl: `nats://127.0.0.1:${port}`,
    ...accessWith(keyFolder, identity),
    ...{ run, identity, log: silent, signal: new AbortController().signal },
    client: identity.role === 'actor' ? identity.actor : 'observer',
  });
}

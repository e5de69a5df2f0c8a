import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../deploy/local/processes/free-port.js';
import type { Broker } from '../../shared/broker/broker.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { brokerOn } from '../support/broker.js';
import { NatsServer } from '../support/nats-server.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { ServiceProcess } from '../support/service-process.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { Kept } from './kept.js';
import { publishedBy } from './nats-frames.js';
import { Witness } from './witness.js';

export const apiKey = 'tml-chaos-test';
export const modelName = 'base';
export const settings = { groupSize: 4, groupsPerBatch: 2, maxStepsOffPolicy: 2, loraRank: 2 };
const leaseSeconds = 4;

/** A whole run as processes, each behind a network of ours, and somebody who hears everything. */
export class World implements AsyncDisposable {
  readonly witness: Witness;
  readonly kept = new Map<string, Kept>();
  readonly networks: Readonly<Record<Network, TcpProxy>>;
  readonly versions: number[] = []; // as an observer sees them
  readonly #stop = new AbortController();
  readonly #started: ServiceProcess[] = [];
  #watching: Promise<void> = Promise.resolve();

  private constructor(
    readonly run: string,
    readonly server: NatsServer,
    readonly observer: Broker,
    readonly folder: string,
    private readonly backendPort: number,
    private readonly recorder: RecordingProxy,
    { witness, networks }: { witness: Witness; networks: Record<Network, TcpProxy> },
  ) {
    this.witness = witness;
    this.networks = networks;
  }

  static async start(run: string, report: (line: string) => void): Promise<World> {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-chaos-'));
    const server = await NatsServer.start();
    const observer = await brokerOn(server, { run, client: 'observer' });
    const witness = new Witness(run, settings.groupSize);
    const backendPort = await freePort();
    const recorder = await RecordingProxy.before(`http://127.0.0.1:${backendPort}`, (...asked) => {
      witness.hearAsked(...asked);
    });
    const tap = () =>
      publishedBy((message) => {
        witness.hearPublished(message);
      });
    const networks = {
      actors: await TcpProxy.before(server.port, tap),
      reward: await TcpProxy.before(server.port, tap),
      learners: await TcpProxy.before(server.port, tap),
      backend: await TcpProxy.before(Number(new URL(recorder.url).port)),
    };
    const facts = { witness, networks };
    const world = new World(run, server, observer, folder, backendPort, recorder, facts);
    world.#begin(report);
    return world;
  }

  /** Steps that were trained so far, those that were lost again included. */
  get steps(): number {
    return [...this.kept.values()].reduce((sum, { steps }) => sum + steps, 0);
  }

  /** The learner whose lease it is; undefined where none has one, or nats-server does not say in time. */
  async leader(): Promise<Kept | undefined> {
    const asked = this.observer.ledger.leader().catch(() => undefined);
    const lease = await Promise.race([asked, sleep(1_000)]);
    return lease === undefined ? undefined : this.kept.get(lease.holder);
  }

  get checkpointFolder(): string {
    return join(this.folder, 'checkpoints');
  }

  /** A learner; with a limit it ends by itself. */
  learner(name: string, maxSteps?: number): ServiceProcess {
    const { groupSize, groupsPerBatch, maxStepsOffPolicy, loraRank } = settings;
    return this.#service('learner', 'learners', [
      `--name=${name}`,
      `--lease-seconds=${leaseSeconds}`,
      `--backend-url=http://127.0.0.1:${this.networks.backend.port}`,
      ...[`--api-key=${apiKey}`, `--model-name=${modelName}`, `--lora-rank=${loraRank}`],
      ...[`--group-size=${groupSize}`, `--groups-per-batch=${groupsPerBatch}`],
      ...['--num-minibatches=1', '--checkpoint-every-steps=3', '--eval-problems=0', '--stop-kl=0'],
      ...['--stop-reward-share=0', `--max-steps-off-policy=${maxStepsOffPolicy}`],
      `--run-dir=${join(this.folder, name)}`,
      ...(maxSteps === undefined ? [] : [`--max-steps=${maxSteps}`]),
    ]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all([...this.kept.values()].map((each) => each.letGo()));
    await Promise.all(this.#started.map((process) => process[Symbol.asyncDispose]()));
    await this.#watching;
    await this.observer[Symbol.asyncDispose]();
    for (const network of Object.values(this.networks)) await network[Symbol.asyncDispose]();
    await this.recorder[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }

  #begin(report: (line: string) => void): void {
    const keep = (name: string, start: () => ServiceProcess) => {
      this.kept.set(name, new Kept(name, start, report));
    };
    keep('backend', () =>
      this.#start('learner/local-backend', [
        ...[`--port=${this.backendPort}`, `--api-key=${apiKey}`, `--model-name=${modelName}`],
        ...[`--checkpoint-dir=${this.checkpointFolder}`, '--threads=1'],
      ]),
    );
    keep('learner-0', () => this.learner('learner-0'));
    keep('learner-1', () => this.learner('learner-1'));
    keep('reward', () => this.#service('reward-service', 'reward', ['--name=reward']));
    for (const name of ['actor-0', 'actor-1']) {
      keep(name, () => this.#service('actor', 'actors', [`--name=${name}`]));
    }
    this.#watching = this.#watch();
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    await this.observer.config.wait(signal).catch(() => undefined);
    for await (const { version } of this.observer.policy.watch(signal)) {
      // The same one may be told of twice after a break of the connection; it is no other one.
      if (version !== this.versions.at(-1)) this.versions.push(version);
    }
  }

  #service(service: string, network: Network, flags: string[]): ServiceProcess {
    const natsUrl = `nats://127.0.0.1:${this.networks[network].port}`;
    const where = [`--nats-url=${natsUrl}`, `--run=${this.run}`];
    return this.#start(service, [...where, `--model-dir=${embeddedModelPath}`, ...flags]);
  }

  #start(service: string, flags: string[]): ServiceProcess {
    const clock = new URL('./jumping-clock.js', import.meta.url).href;
    const process = new ServiceProcess(service, flags, { NODE_OPTIONS: `--import=${clock}` });
    this.#started.push(process);
    return process;
  }
}

export const networks = ['actors', 'reward', 'learners', 'backend'] as const;
export type Network = (typeof networks)[number];

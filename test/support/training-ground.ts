import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { headers } from 'nats';
import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { PermanentError } from '../../shared/base/errors.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import { ScoredGroup, type Score } from '../../shared/wire/scored-group.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import { messageIdOf } from '../../shared/wire/ticket-ids.js';
import { brokerOn } from './broker.js';
import { silent } from './log.js';
import { NatsServer } from './nats-server.js';
import { ServiceProcess } from './service-process.js';
import { tinyModel } from './tiny-model.js';

export const apiKey = 'tml-learner-test';
export const samplingApiKey = 'tml-actor-test';

/** How and when answers are scored. */
export interface Scoring {
  readonly doomed?: readonly number[]; // orders of tickets whose groups cannot be scored
  readonly lost?: readonly number[]; // orders of tickets whose scored groups lose their bodies
  readonly before?: (order: number) => Promise<void>; // called before a training group is scored
  readonly alter?: (group: RolloutGroup) => RolloutGroup; // as another actor would have sent it
  readonly isCorrect?: (
    rollout: { readonly tokens: Int32Array },
    index: number,
    ticket: Ticket,
  ) => boolean;
}

/** A real server and a local backend with a tiny random model, for one run or for several runs with names of their own. */
export class TrainingPlace implements AsyncDisposable {
  #backendPort = 0;
  backend!: ServiceProcess;

  private constructor(
    readonly server: NatsServer,
    readonly model: ModelDirectory & AsyncDisposable,
    readonly checkpoints: string,
    readonly environment: NodeJS.ProcessEnv,
  ) {}

  /** @param environment of the backend, in addition to that of this process. */
  static async prepare(environment: NodeJS.ProcessEnv = {}): Promise<TrainingPlace> {
    const server = await NatsServer.start();
    const model = await tinyModel(1, { maxPositions: 512 });
    const checkpoints = await mkdtemp(join(tmpdir(), 'offbeat-checkpoints-'));
    const place = new TrainingPlace(server, model, checkpoints, environment);
    await place.startBackend();
    return place;
  }

  /**
   * One for all tests of a file, or of a suite: call it where they are declared. A fresh backend costs as much
   * processor time as about three steps of training. A test that stops a part starts it again, or has its own place.
   */
  static shared(): () => TrainingPlace {
    let place: TrainingPlace;
    before(async () => {
      place = await TrainingPlace.prepare();
    });
    after(() => place[Symbol.asyncDispose]());
    return () => place;
  }

  get backendUrl(): string {
    return `http://127.0.0.1:${this.#backendPort}`;
  }

  /** Starts the backend, or restarts it at the same place. */
  async startBackend(): Promise<void> {
    const flags = [
      ...['--port', String(this.#backendPort), '--model-dir', this.model.path],
      ...['--checkpoint-dir', this.checkpoints, '--api-key', apiKey],
      ...['--sampling-api-key', samplingApiKey],
      ...['--model-name', 'tiny', '--threads', '1'],
    ];
    this.backend = new ServiceProcess('local-backend', flags, this.environment);
    const { url } = await this.backend.says(({ msg }) => msg === 'listening');
    this.#backendPort = Number(new URL(String(url)).port);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    await this.model[Symbol.asyncDispose]();
    await rm(this.checkpoints, { recursive: true, force: true });
  }
}

/** Everything that a learner needs, as processes: a place, an actor, and a reward that a random model can earn. */
export class TrainingGround implements AsyncDisposable {
  readonly #stop = new AbortController();
  readonly #processes: ServiceProcess[] = [];
  #collecting: Promise<void> = Promise.resolve();

  private constructor(
    readonly run: string,
    readonly place: TrainingPlace,
    readonly broker: Broker,
    readonly folder: string,
    readonly environment: NodeJS.ProcessEnv,
    readonly ownsPlace: boolean,
  ) {}

  /**
   * In a place of its own.
   *
   * @param environment of the processes, in addition to that of this one.
   */
  static async prepare(run: string, environment: NodeJS.ProcessEnv = {}): Promise<TrainingGround> {
    return await TrainingGround.#in(await TrainingPlace.prepare(environment), run, true);
  }

  /** In a place that outlives it, where no other run has this name. */
  static async at(place: TrainingPlace, run: string): Promise<TrainingGround> {
    return await TrainingGround.#in(place, run, false);
  }

  static async #in(place: TrainingPlace, run: string, isOwn: boolean): Promise<TrainingGround> {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-learner-'));
    const broker = await brokerOn(place.server, { run, client: 'observer' });
    return new TrainingGround(run, place, broker, folder, place.environment, isOwn);
  }

  get server(): NatsServer {
    return this.place.server;
  }

  get model(): ModelDirectory {
    return this.place.model;
  }

  get backend(): ServiceProcess {
    return this.place.backend;
  }

  get backendUrl(): string {
    return this.place.backendUrl;
  }

  get runDir(): string {
    return join(this.folder, 'run');
  }

  /** Starts the backend again, which has been stopped. */
  startBackend(): Promise<void> {
    return this.place.startBackend();
  }

  /** @param more flags in addition to those that every actor needs. */
  actor(name: string, ...more: readonly string[]): ServiceProcess {
    const model = ['--model-dir', this.model.path];
    return this.#start('actor', [...this.#where, ...model, '--name', name, ...more]);
  }

  /** A learner with small steps; the flags extend or replace its defaults, or remove them. */
  learner(flags: Readonly<Record<string, string | number | undefined>>): ServiceProcess {
    const settings: Parameters<TrainingGround['learner']>[0] = {
      run: this.run,
      'run-dir': this.runDir,
      name: 'learner',
      'model-dir': this.model.path,
      'backend-url': this.backendUrl,
      'api-key': apiKey,
      'train-size': 40,
      'test-size': 10,
      numbers: '3',
      'max-number': 30,
      'max-target': 100,
      'max-tokens': 6,
      'group-size': 4,
      'groups-per-batch': 4,
      'num-minibatches': 2,
      'lora-rank': 4,
      'max-steps-off-policy': 1,
      'eval-problems': 0,
      'learning-rate': 0.02,
      'trainer-class': 'fp32',
      ...flags,
    };
    const words = Object.entries(settings).flatMap(([flag, value]) =>
      value === undefined ? [] : `--${flag}=${value}`,
    );
    return this.#start('learner', ['--nats-url', this.server.url, ...words]);
  }

  /**
   * Scores what the actors sample: by default 1 for an answer whose first token is even. A random
   * model earns it half of the time, and learns to earn it always.
   */
  async startScoring(scoring: Scoring = {}): Promise<void> {
    const { doomed = [], lost = [], before, alter, isCorrect = startsEven } = scoring;
    const { signal } = this.#stop;
    const { broker } = this;
    await new RunConfigStore(broker).wait(signal); // the streams exist by then
    this.#collecting = consume(
      broker,
      'rollouts',
      RolloutGroup,
      { signal, log: silent, stage: 'reward', concurrency: 16 },
      async ({ value }) => {
        const group = alter?.(value) ?? value;
        const { split, order } = group.ticket;
        if (split === 'train' && doomed.includes(order)) throw new PermanentError('doomed');
        if (split === 'train') await before?.(order);
        const scores = group.rollouts.map((rollout, i) =>
          scoreOf(isCorrect(rollout, i, group.ticket)),
        );
        const scored: ScoredGroup = { v: 1, group, scores, scorer: 'test', scoredAt: Date.now() };
        const msgId = messageIdOf(group.ticket);
        const subject = broker.names.subjects.scored(split);
        if (split === 'train' && lost.includes(order)) {
          const fields = headers();
          fields.set('Offbeat-Body', 'none');
          await broker.link.js.publish(subject, new Uint8Array(), {
            msgID: msgId,
            headers: fields,
          });
          return;
        }
        await broker.publish(subject, ScoredGroup, scored, { msgId, signal });
      },
    );
  }

  /** Shortens the lease of tickets, so that those of a dead actor soon go to another; call it before any actor starts. */
  async shortenLeases(seconds: number): Promise<void> {
    await new RunConfigStore(this.broker).wait(this.#stop.signal); // the consumers exist by then
    const { stream, durable } = this.broker.names.consumer('tickets.train');
    const nanoseconds = seconds * 1e9;
    await this.broker.link.jsm.consumers.update(stream, durable, { ack_wait: nanoseconds });
  }

  /** The lines of metrics.jsonl. */
  async metrics(): Promise<Record<string, number>[]> {
    return (await this.#lines('metrics.jsonl')) as Record<string, number>[];
  }

  async evals(): Promise<EvalResult[]> {
    return (await this.#lines('evals.jsonl')) as EvalResult[];
  }

  async summary(): Promise<unknown> {
    return JSON.parse(await readFile(join(this.runDir, 'summary.json'), 'utf8'));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#collecting;
    await Promise.all(this.#processes.map((process) => process[Symbol.asyncDispose]()));
    await this.broker[Symbol.asyncDispose]();
    if (this.ownsPlace) await this.place[Symbol.asyncDispose]();
    await rm(this.folder, { recursive: true, force: true });
  }

  async #lines(file: string): Promise<unknown[]> {
    const text = await readFile(join(this.runDir, file), 'utf8');
    return text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as unknown);
  }

  get #where(): string[] {
    return ['--nats-url', this.server.url, '--run', this.run];
  }

  #start(service: string, flags: string[]): ServiceProcess {
    const process = new ServiceProcess(service, flags, this.environment);
    this.#processes.push(process);
    return process;
  }
}

export function startsEven({ tokens }: { readonly tokens: Int32Array }): boolean {
  return tokens[0]! % 2 === 0;
}

function scoreOf(isCorrect: boolean): Score {
  return {
    reward: Number(isCorrect),
    exactReward: String(Number(isCorrect)),
    isCorrect,
    hasFormat: true,
    isValid: true,
    reason: isCorrect ? 'correct' : 'wrong_value',
  };
}

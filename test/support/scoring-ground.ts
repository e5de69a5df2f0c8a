import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { generateProblems, type SolvedProblem } from '../../shared/tasks/countdown/generator.js';
import { countdown } from '../../shared/tasks/countdown/task.js';
import type { GeneratorSpec } from '../../shared/tasks/countdown/spec.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import { loadTokenizer, type Tokenizer } from '../../shared/model/tokenizer.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import { answers } from '../reward-service/values.js';
import { brokerOn } from './broker.js';
import { countdownSpec } from './countdown-task.js';
import { silent } from './log.js';
import { runConfig } from './messages.js';
import { NatsServer } from './nats-server.js';
import { ServiceProcess } from './service-process.js';
import { tinyModel } from './tiny-model.js';

const dataset: GeneratorSpec = {
  kind: 'generator',
  seed: 0,
  numbers: [3],
  maxNumber: 20,
  maxTarget: 100,
  trainSize: 40,
  testSize: 10,
};
const solved = generateProblems(dataset);

/** Everything that reward service processes need: a real server, a tiny model, problems. */
export class ScoringGround implements AsyncDisposable {
  private constructor(
    readonly server: NatsServer,
    readonly model: ModelDirectory & AsyncDisposable,
    readonly tokenizer: Tokenizer,
    readonly config: RunConfig,
  ) {}

  static async prepare(): Promise<ScoringGround> {
    const server = await NatsServer.start();
    const model = await tinyModel();
    const task = countdownSpec({ dataset });
    const { digest: datasetDigest } = await countdown.open(task).load();
    const config = runConfig({
      task,
      datasetDigest,
      groupSize: 2, // as `send` sends them
      model: { name: 'tiny', digest: model.digest },
    });
    return new ScoringGround(server, model, await loadTokenizer(model), config);
  }

  /**
   * A new run whose scored groups are collected; its configuration is not written yet.
   *
   * @param leaseMs after which an abandoned group is redelivered.
   */
  async begin(leaseMs = 1_000): Promise<ScoringRun> {
    const ackWaitMs = { rollouts: leaseMs };
    const broker = await brokerOn(this.server, { client: 'learner', ackWaitMs });
    await broker.ensureRun({ trainTickets: 2_000, evalTickets: 100 });
    return new ScoringRun(this, broker);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.model[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}

/** A run on that ground that plays its actors and learner. Disposing ends all replicas. */
export class ScoringRun implements AsyncDisposable {
  readonly heldOut: SolvedProblem = solved.test[0]!;
  /** In the order of publication. */
  readonly scored: ScoredGroup[] = [];
  readonly #replicas: ServiceProcess[] = [];
  readonly #stop = new AbortController();
  readonly #collecting: Promise<void>[];

  constructor(
    readonly ground: ScoringGround,
    readonly broker: Broker,
  ) {
    const options = {
      signal: this.#stop.signal,
      log: silent,
      stage: 'learner',
      concurrency: 1,
    } as const;
    this.#collecting = (['scored.train', 'scored.eval'] as const).map((source) =>
      consume(broker, source, ScoredGroup, options, ({ value }) => {
        this.scored.push(value);
        return Promise.resolve();
      }),
    );
  }

  /** @param environment in addition to that of this process. */
  start(name: string, environment: NodeJS.ProcessEnv = {}): ServiceProcess {
    const { server, model } = this.ground;
    const where = ['--nats-url', server.url, '--run', 'test', '--model-dir', model.path];
    const replica = new ServiceProcess('reward-service', [...where, '--name', name], environment);
    this.#replicas.push(replica);
    return replica;
  }

  /** Replicas that are ready to score. */
  async join<Names extends readonly string[]>(
    ...names: Names
  ): Promise<{ [K in keyof Names]: ServiceProcess }> {
    await new RunConfigStore(this.broker).put(this.ground.config);
    const replicas = names.map((name) => this.start(name));
    await Promise.all(replicas.map((replica) => replica.says(hasJoined)));
    return replicas as { [K in keyof Names]: ServiceProcess };
  }

  /** Sends a group of a right and a wrong answer for the `order`-th ticket. */
  async send(order: number, named: Partial<Ticket> = {}, msgId = `g-${order}`): Promise<void> {
    const trained = solved.train;
    const { problem, witness } = trained[order % trained.length]!;
    const texts = [witness, problem.numbers.join('+')];
    const ticket = { ticketId: `t-${order}`, order, ...named };
    await this.publish(answers(this.ground.tokenizer, texts, ticket, problem), msgId);
  }

  async sendAll(count: number): Promise<void> {
    await Promise.all(Array.from({ length: count }, (_, order) => this.send(order)));
  }

  /** @param by the actor that sends it. */
  async publish(group: RolloutGroup, msgId: string, by = group.actor): Promise<void> {
    const subject = this.broker.names.subjects.rollouts(by);
    const { signal } = this.#stop;
    await this.broker.publish(subject, RolloutGroup, group, { msgId, signal });
  }

  /** The tickets whose scores were published, once for each time. */
  get orders(): number[] {
    return this.scored.map(({ group }) => group.ticket.order).sort((a, b) => a - b);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#replicas.map((replica) => replica.stop('SIGKILL')));
    this.#stop.abort();
    await Promise.all(this.#collecting);
    await this.broker.deleteRun();
    await this.broker[Symbol.asyncDispose]();
  }
}

/** Whether this is the log line with a replica's port. */
export function hasJoined({ msg }: Record<string, unknown>): boolean {
  return msg === 'joined the run';
}

/** `0, 1, …, count - 1`. */
export function firstOrders(count: number): number[] {
  return Array.from({ length: count }, (_, order) => order);
}

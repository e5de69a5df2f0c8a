import { consume } from '../../shared/broker/consume.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { PolicyUpdate } from '../../shared/broker/policy-store.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import { openTask } from '../../shared/tasks/registry.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { publishedAdapter } from '../actor/adapters.js';
import { brokerOn } from './broker.js';
import { silent } from './log.js';
import { runConfig, ticket } from './messages.js';
import { NatsServer } from './nats-server.js';
import { ServiceProcess } from './service-process.js';
import { tinyModel } from './tiny-model.js';

/** The learner's and the reward service's side of a run, as an actor sees them. */
export interface Run extends AsyncDisposable {
  readonly broker: Broker;
  readonly groups: RolloutGroup[]; // delivered so far
  /** Issues the next ticket of the run, valid except for the fields that the test sets. */
  issue(named: Partial<Ticket>): Promise<void>;
  /** Publishes a version with its own adapter; earlier samples stay usable. */
  publish(version: number, named?: Partial<PolicyUpdate>): Promise<void>;
  /** Starts an actor of the run. */
  actor(name: string, environment?: NodeJS.ProcessEnv): ServiceProcess;
}

/** A server and a tiny model, on which runs can be started. */
export interface Ground extends AsyncDisposable {
  readonly model: ModelDirectory;
  readonly dataset: Dataset;
  /** A run that actors can join, its configuration valid except for the fields that the test sets. */
  startRun(named?: Partial<RunConfig>): Promise<Run>;
}

export async function prepareGround(): Promise<Ground> {
  const server = await NatsServer.start();
  const model = await tinyModel(1, { maxPositions: 512 });
  const dataset = await openTask(runConfig().task).load();
  let runs = 0;
  return {
    model,
    dataset,
    startRun: (named = {}) => startRun(`run-${runs++}`, named, { server, model, dataset }),
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await model[Symbol.asyncDispose]();
    },
  };
}

async function startRun(
  name: string,
  named: Partial<RunConfig>,
  { server, model, dataset }: { server: NatsServer; model: ModelDirectory; dataset: Dataset },
): Promise<Run> {
  const stop = new AbortController();
  const { signal } = stop;
  const ackWaitMs = { 'tickets.train': 2_000 }; // a killed actor's ticket returns after this
  const broker = await brokerOn(server, { run: name, signal, ackWaitMs });
  await broker.ensureRun({ trainTickets: 64, evalTickets: 64 });
  const agreed = { run: name, model: { name: 'tiny', digest: model.digest } };
  await new RunConfigStore(broker).put(
    runConfig({ ...agreed, datasetDigest: dataset.digest, ...named }),
  );
  const groups: RolloutGroup[] = [];
  const collecting = consume(
    broker,
    'rollouts',
    RolloutGroup,
    { signal, log: silent, stage: 'test', concurrency: 1 },
    ({ value }) => {
      groups.push(value);
      return Promise.resolve();
    },
  );
  let tickets = 0;
  return {
    broker,
    groups,
    issue: async (fields) => {
      const order = tickets++;
      const problemId = dataset.train[order % dataset.train.length]!.id;
      const issued = ticket({ ticketId: `t-${order}`, order, problemId, ...fields });
      const subject = broker.names.subjects.tickets(issued.split);
      await broker.publish(subject, Ticket, issued, { msgId: issued.ticketId, signal });
    },
    publish: async (version, over) => {
      const samplerPath = `tinker://run/sampler_weights/v${version}`;
      const update = { version, samplerPath, smallestUsefulVersion: 0, ...over };
      await broker.policy.publish(update, publishedAdapter(version, model.config));
    },
    actor: (actor, environment) => {
      const where = ['--nats-url', server.url, '--run', name, '--model-dir', model.path];
      return new ServiceProcess('actor', [...where, '--name', actor], environment);
    },
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await collecting;
      await broker[Symbol.asyncDispose]();
    },
  };
}

import { setTimeout as sleep } from 'node:timers/promises';
import { connect, nanos } from 'nats';
import { encode } from '../../shared/wire/codec.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { newTicketKey } from '../../shared/wire/ticket-ids.js';
import { rolloutGroup, ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { until } from '../support/waiting.js';
import { BenchProcess, type Usage, usageOf } from './bench-process.js';
import type { Figure } from './main.js';
import type { Plane, Role } from './plane-parts.js';

/** What is measured, so that a part can be measured alone: `PLANE_ACTORS=1,8 PLANE_TOKENS= npm run bench -- plane`. */
const settings = {
  tokens: numbers('PLANE_TOKENS', '256,8'),
  rollouts: numbers('PLANE_ROLLOUTS', '20000')[0]!,
  actors: numbers('PLANE_ACTORS', '1,8,64'),
  adapterBytes: numbers('PLANE_ADAPTER_BYTES', '0,1245184'), // the second is what the default run publishes
  seconds: numbers('PLANE_SECONDS', '30')[0]!, // of publications
  backlog: numbers('PLANE_BACKLOG', '1000,10000,100000'), // in rollouts
};

const usual = {
  ...{ run: 'bench', groupSize: 16, tokens: 256, groupsPerBatch: 64, bound: 2 },
  ...{ concurrency: 8, sampleMs: 0, adapterBytes: 0, backlog: 0 },
};

/**
 * The way of rollouts and policy versions between the processes of a run, beside what JetStream alone takes. The processor
 * time is given too, because other programs may use the same cores.
 */
export async function benchPlane(): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const tokens of settings.tokens) {
    figures.push(...(await raw(tokens)), ...(await throughput(tokens)));
  }
  for (const actors of settings.actors) {
    for (const bytes of settings.adapterBytes) figures.push(...(await firstTokens(actors, bytes)));
  }
  for (const rollouts of settings.backlog) figures.push(...(await backlog(rollouts)));
  return figures;
}

/** A server and the processes of a run on it. */
class Ground implements AsyncDisposable {
  readonly #parts: BenchProcess[] = [];

  private constructor(
    readonly server: NatsServer,
    readonly plane: Plane,
  ) {}

  static async prepare(over: Partial<Plane>): Promise<Ground> {
    const server = await NatsServer.start();
    return new Ground(server, {
      ...{ ...usual, natsUrl: server.url, ticketKey: newTicketKey() },
      ...over,
    });
  }

  start(role: Role, name: string = role): BenchProcess {
    const entry = new URL('./plane-parts.js', import.meta.url);
    const part = new BenchProcess(entry, [role, JSON.stringify(this.plane), name]);
    this.#parts.push(part);
    return part;
  }

  get serverUsage(): Usage {
    return usageOf(this.server.pid);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const part of this.#parts) await part[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}

/** From the actors to the learner and its acknowledgements; two actors, one reward service. */
async function throughput(tokens: number): Promise<Figure[]> {
  await using ground = await Ground.prepare({ tokens });
  const learner = ground.start('learner');
  await learner.call('receive');
  await learner.call('train');
  const reward = ground.start('reward');
  const actors = [ground.start('actor', 'actor-0'), ground.start('actor', 'actor-1')];
  for (const part of [reward, ...actors]) await part.call('start');
  const { groupSize } = ground.plane;
  const parts: Record<string, () => number> = {
    learner: () => learner.usage.cpuMs,
    'reward service': () => reward.usage.cpuMs,
    actors: () => actors.reduce((sum, { usage }) => sum + usage.cpuMs, 0),
    'nats-server': () => ground.serverUsage.cpuMs,
  };
  const snapshot = async () => ({
    at: performance.now(),
    rollouts: groupSize * (await learner.call<number>('trained')),
    cpu: Object.values(parts).map((read) => read()),
  });
  const passed = async (rollouts: number) => {
    await until(async () => {
      await sleep(50);
      return groupSize * (await learner.call<number>('trained')) >= rollouts;
    });
    return snapshot();
  };
  const before = await passed(settings.rollouts / 4);
  const after = await passed(before.rollouts + settings.rollouts);
  const rollouts = after.rollouts - before.rollouts;
  const cpu = after.cpu.map((ms, i) => ms - before.cpu[i]!);
  const total = cpu.reduce((sum, ms) => sum + ms, 0);
  const of = `rollouts of ${tokens} tokens`;
  return [
    { what: of, value: (1_000 * rollouts) / (after.at - before.at), unit: 'rollouts/s' },
    {
      what: `${of}, on 2 idle cores by processor time`,
      value: rollouts / (Math.max(total / 2, ...cpu) / 1_000),
      unit: 'rollouts/s',
    },
    ...Object.keys(parts).map((part, i) => ({
      what: `${of}: ${part}, processor`,
      value: (1_000 * cpu[i]!) / rollouts,
      unit: 'ms/1,000',
    })),
  ];
}

/** What JetStream does with messages of the same size, published and consumed by the client itself. */
async function raw(tokens: number): Promise<Figure[]> {
  await using server = await NatsServer.start();
  const connection = await connect({ servers: server.url });
  const [js, jsm] = [connection.jetstream(), await connection.jetstreamManager()];
  await jsm.streams.add({ name: 'RAW', subjects: ['raw'] });
  await jsm.consumers.add('RAW', {
    ...{ durable_name: 'raw', ack_policy: 'explicit' as never, ack_wait: nanos(30_000) },
    max_ack_pending: 10_000,
  });
  const group = rolloutGroup({ ticket: ticket({ groupSize: usual.groupSize }) }, tokens);
  const data = encode(RolloutGroup, group);
  const count = 3_000;
  const timed = async (what: string, work: () => Promise<unknown>): Promise<Figure[]> => {
    const [at, cpu, served] = [performance.now(), process.cpuUsage(), usageOf(server.pid).cpuMs];
    await work();
    const { user, system } = process.cpuUsage(cpu);
    const ms = (user + system) / 1_000 + usageOf(server.pid).cpuMs - served;
    const of = `raw JetStream, ${data.byteLength} bytes: ${what}`;
    const seconds = (performance.now() - at) / 1_000;
    return [
      { what: of, value: count / seconds, unit: 'messages/s' },
      { what: `${of}, processor`, value: (1_000 * ms) / count, unit: 'ms/1,000' },
    ];
  };
  let sent = 0;
  const send = async (): Promise<void> => {
    while (sent < count) await js.publish('raw', data, { msgID: `m-${sent++}` });
  };
  const published = await timed('publish', () => Promise.all(Array.from({ length: 64 }, send)));
  const consumer = await js.consumers.get('RAW', 'raw');
  const consumed = await timed('consume', async () => {
    let received = 0;
    for await (const message of await consumer.consume({ max_messages: 256 })) {
      message.ack();
      if (++received === count) break;
    }
    await connection.flush();
  });
  await connection.close();
  return [...published, ...consumed];
}

/** The time from the start of a publication, about one a second, to the first token of each actor, which draws a token at every moment. */
async function firstTokens(count: number, adapterBytes: number): Promise<Figure[]> {
  await using ground = await Ground.prepare({
    ...{ adapterBytes, tokens: 8, concurrency: 2, sampleMs: 1_000, groupsPerBatch: 2 * count },
  });
  const learner = ground.start('learner');
  await learner.call('receive');
  const reward = ground.start('reward');
  await reward.call('start');
  const actors = Array.from({ length: count }, (_, i) => ground.start('actor', `actor-${i}`));
  for (const actor of actors) await actor.call('start');
  const reach = (version: number) =>
    until(async () => {
      for (const actor of actors) if ((await actor.call<number>('version')) < version) return false;
      return true;
    });
  await reach(0);
  await learner.call('train');
  await sleep(2_000);
  for (const actor of actors) await actor.call('firstTokens');
  const cpu = () => actors.reduce((sum, { usage }) => sum + usage.cpuMs, 0);
  const [at, before] = [performance.now(), cpu()];
  await sleep(1_000 * settings.seconds);
  const seconds = (performance.now() - at) / 1_000;
  const used = cpu() - before;
  const delays: number[] = [];
  for (const actor of actors) delays.push(...(await actor.call<number[]>('firstTokens')));
  delays.sort((a, b) => a - b);
  const quantile = (q: number) => delays[Math.ceil(q * delays.length) - 1]!;
  const of = `${count} actors, adapter of ${adapterBytes} bytes`;
  const resident = actors.map(({ usage }) => usage.residentMiB).sort((a, b) => a - b);
  return [
    { what: `${of}: publish to first token, p50`, value: quantile(0.5), unit: 'ms' },
    { what: `${of}: the same, p99`, value: quantile(0.99), unit: 'ms' },
    { what: `${of}: first tokens an actor`, value: delays.length / count, unit: '' },
    { what: `${of}: processor of an actor`, value: used / count / seconds, unit: 'ms/s' },
    { what: `${of}: memory of an actor`, value: resident[count >> 1]!, unit: 'MiB' },
  ];
}

/** A learner that a crash made start again far behind, with so many rollouts in its queue. */
async function backlog(rollouts: number): Promise<Figure[]> {
  const groupSize = 32;
  const groups = Math.ceil(rollouts / groupSize);
  await using ground = await Ground.prepare({ groupSize, backlog: groups });
  const learner = ground.start('learner');
  await learner.call('held'); // its streams are there
  {
    await using filler = ground.start('filler');
    await filler.call('fill');
  }
  await learner.call('receive');
  const held = () => learner.call<number>('held');
  // Until all are received, or it takes no more before it has trained some.
  for (let before = -1; before !== (await held()) && (await held()) < groups;) {
    before = await held();
    await sleep(5_000);
  }
  const received = learner.usage;
  await learner.call('train');
  const trained = async () => (await learner.call<number>('trained')) >= groups - 128;
  await until(async () => (await sleep(200), trained()));
  const of = `backlog of ${rollouts} rollouts`;
  return [
    { what: `${of}: learner, before it trains`, value: received.residentMiB, unit: 'MiB' },
    { what: `${of}: learner, at most`, value: learner.usage.peakMiB, unit: 'MiB' },
    { what: `${of}: learner, processor`, value: learner.usage.cpuMs, unit: 'ms' },
  ];
}

function numbers(variable: string, otherwise: string): number[] {
  return (process.env[variable] ?? otherwise).split(',').filter(Boolean).map(Number);
}

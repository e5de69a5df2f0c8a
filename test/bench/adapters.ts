import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { NatsServer } from '../support/nats-server.js';
import { until } from '../support/waiting.js';
import type { AdapterPlane, AdapterRole } from './adapter-parts.js';
import { BenchProcess, usageOf } from './bench-process.js';
import type { Figure } from './main.js';

const sizes = (process.env['ADAPTERS_MB'] ?? '1,130,349').split(',').map(Number); // 349: Qwen3-8B at rank 32
const ways = (process.env['ADAPTERS_BY'] ?? 'nats,folder,link').split(',');
const dtype = process.env['ADAPTERS_DTYPE'] === 'bf16' ? 'bf16' : 'fp32';
const readers = 3;
const versions = 4; // the first is not counted

/** Publishes adapters of real size and has three actors load each: by NATS, by a shared folder and by a link. */
export async function benchAdapters(): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const megabytes of sizes) {
    for (const way of ways) figures.push(...(await measure(megabytes, way)));
  }
  return figures;
}

async function measure(megabytes: number, way: string): Promise<Figure[]> {
  const folder = await mkdtemp(join(tmpdir(), 'offbeat-adapters-'));
  await using server = await NatsServer.start();
  const plane: AdapterPlane = {
    ...{ natsUrl: server.url, run: 'bench', megabytes, dtype },
    store: way === 'folder' ? folder : way,
    sources: `${folder},http://127.0.0.1`,
  };
  const entry = new URL('./adapter-parts.js', import.meta.url);
  const start = (role: AdapterRole, sources = plane.sources) =>
    new BenchProcess(entry, [role, JSON.stringify({ ...plane, sources }), role]);
  await using learner = start('learner');
  const bytes = await learner.call<number>('file');
  await using web = way === 'link' ? start('web') : undefined;
  const url = await web?.call<string>('serve', 0);
  const actors: BenchProcess[] = [];
  await using _actors = new AsyncStack(actors);
  for (let i = 0; i < readers; i++) {
    actors.push(start('actor', url === undefined ? folder : new URL(url).origin));
  }
  const parts = { learner, actors: actors[0]!, ...(web && { web }) };
  const cpu = () => [
    ...Object.values(parts).map(({ usage }) => usage.cpuMs),
    usageOf(server.pid).cpuMs,
  ];
  const seconds: number[] = [];
  let [before, stored] = [cpu(), 0];
  for (let version = 0; version < versions; version++) {
    if (version === 1) before = cpu();
    await learner.call('link', await web?.call('serve', version));
    const startedAt = await learner.call<number>('publish', version);
    let last = 0;
    for (const actor of actors) {
      await until(async () => {
        const at = await actor.call<number>('loadedAt', version);
        last = Math.max(last, at);
        return at > 0 || (await sleep(20), false);
      });
    }
    seconds.push((last - startedAt) / 1_000);
    stored = Math.max(stored, await learner.call<number>('stored'));
    await learner.call('retire');
  }
  const spent = cpu().map((ms, i) => (ms - before[i]!) / (versions - 1));
  await rm(folder, { recursive: true });
  const of = `${Math.round(bytes / 1e6)} MB by ${way}`;
  const counted = seconds.slice(1).sort((a, b) => a - b);
  return [
    {
      what: `${of}: until three actors have it, median`,
      value: counted[counted.length >> 1]!,
      unit: 's',
    },
    ...[...Object.keys(parts), 'nats-server'].map((part, i) => ({
      what: `${of}: ${part === 'actors' ? 'each actor' : part}, processor`,
      value: spent[i]! / 1_000,
      unit: 's',
    })),
    { what: `${of}: learner, memory at most`, value: learner.usage.peakMiB, unit: 'MiB' },
    { what: `${of}: actor, memory at most`, value: actors[0]!.usage.peakMiB, unit: 'MiB' },
    { what: `${of}: nats-server, memory at most`, value: usageOf(server.pid).peakMiB, unit: 'MiB' },
    { what: `${of}: in NATS, at most`, value: stored / 1e6, unit: 'MB' },
  ];
}

class AsyncStack implements AsyncDisposable {
  constructor(private readonly items: readonly AsyncDisposable[]) {}

  async [Symbol.asyncDispose](): Promise<void> {
    for (const item of this.items) await item[Symbol.asyncDispose]();
  }
}

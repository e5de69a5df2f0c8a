/**
 * The thread that owns the model. Sampling blocks it, so while groups are being sampled the messages
 * that arrived are taken between two tokens: that is how a new version is adopted in flight.
 */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { Decoder, type Policy } from '../../shared/model/decoder.js';
import { checkAdapter, decodeAdapter } from '../../shared/model/lora.js';
import { checkModelDirectory } from '../../shared/model/model-directory.js';
import { toFailure } from './decoder-failure.js';
import type { AdapterFile, DecoderWorkerData, FromDecoder, ToDecoder } from './decoder-messages.js';
import { takeWave, type QueuedGroup } from './wave.js';

if (parentPort === null) throw new Error('decoder-worker runs as a worker thread only');
const port = parentPort;
const { modelPath, threads } = workerData as DecoderWorkerData;

/** A group with the policy that it begins with, which it keeps even if that is dropped meanwhile. */
interface HeldGroup extends QueuedGroup {
  readonly held: Policy;
}

const policies = new Map<number, Policy>();
let wave: readonly HeldGroup[] = []; // under way
let queue: HeldGroup[] = []; // waits for the wave to end
let aliveAt = -Infinity; // told last, in ms
const aliveEveryMs = 1_000;
const abandoned = new Map<number, number>(); // ids in the wave that nobody waits for: their tokens

try {
  const decoder = await Decoder.load(await checkModelDirectory(modelPath), { threads });
  port.on('message', (message: ToDecoder) => {
    receive(message, decoder);
    void sampleQueued(decoder);
  });
  answer({ kind: 'ready' });
} catch (error) {
  answer({ kind: 'broken', failure: toFailure(error) });
}

function receive(message: ToDecoder, decoder: Decoder): void {
  switch (message.kind) {
    case 'load':
      load(message.adapter, decoder);
      return;
    case 'drop':
      policies.delete(message.version);
      return;
    case 'sample':
      enqueue(message);
      return;
    case 'abort':
      abandon(message.id);
      return;
  }
}

function enqueue(group: QueuedGroup): void {
  const held = policies.get(group.policy.version);
  if (held !== undefined) queue.push({ ...group, held });
  else fail(group, new Error(`policy version ${group.policy.version} is not loaded`));
}

function abandon(id: number): void {
  if (wave.some((group) => group.id === id)) abandoned.set(id, 0);
  const waiting = queue.find((group) => group.id === id);
  if (waiting === undefined) return;
  queue = queue.filter((group) => group !== waiting);
  answer({ kind: 'abandoned', id, tokens: 0 });
}

function load({ version, safetensors, rank, alpha }: AdapterFile, decoder: Decoder): void {
  try {
    const adapter = decodeAdapter(safetensors, { rank, alpha });
    checkAdapter(adapter, decoder.config);
    policies.set(version, { version, adapter });
    answer({ kind: 'loaded', version });
  } catch (error) {
    answer({ kind: 'refused', version, failure: toFailure(error) });
  }
}

/** Samples what waits, wave after wave. */
async function sampleQueued(decoder: Decoder): Promise<void> {
  while (wave.length === 0 && queue.length > 0) {
    ({ wave, rest: queue } = takeWave(queue));
    await sampleWave(decoder, wave);
    wave = [];
    abandoned.clear();
  }
}

async function sampleWave(decoder: Decoder, groups: readonly HeldGroup[]): Promise<void> {
  const idOf = new Map(groups.map(({ id, request }) => [request, id]));
  const { adoptsNewer } = groups[0]!.policy;
  let policy = groups.map(({ held }) => held).reduce(newerOf);
  let toldOf: Policy | undefined;
  try {
    const sampled = await decoder.sampleGroups(
      [...idOf.keys()],
      () => {
        drain(decoder);
        tellAlive();
        if (adoptsNewer) policy = [...policies.values()].reduce(newerOf, policy);
        if (policy !== toldOf) {
          answer({ kind: 'draws', ids: [...idOf.values()], version: policy.version });
          toldOf = policy;
        }
        return policy;
      },
      (request, tokens) => {
        const id = idOf.get(request)!;
        if (!abandoned.has(id)) return true;
        abandoned.set(id, tokens);
        return false;
      },
    );
    groups.forEach(({ id }, i) => {
      const rollouts = sampled[i];
      if (rollouts !== undefined) answer({ kind: 'sampled', id, rollouts });
      else answer({ kind: 'abandoned', id, tokens: abandoned.get(id) ?? 0 });
    });
  } catch (error) {
    // One of them may be at fault, and the others must not suffer for it.
    if (groups.length > 1) for (const group of groups) await sampleWave(decoder, [group]);
    else fail(groups[0]!, error);
  }
}

/** Now and then, so that a decoder that is slow can be told from one that hangs. */
function tellAlive(): void {
  if (performance.now() - aliveAt < aliveEveryMs) return;
  aliveAt = performance.now();
  answer({ kind: 'alive' });
}

function newerOf(a: Policy, b: Policy): Policy {
  return b.version > a.version ? b : a;
}

/** Takes every message that has arrived, without giving up the thread. */
function drain(decoder: Decoder): void {
  for (;;) {
    const received = receiveMessageOnPort(port) as { message: ToDecoder } | undefined;
    if (received === undefined) return;
    receive(received.message, decoder);
  }
}

function fail({ id }: QueuedGroup, error: unknown): void {
  answer({ kind: 'failed', id, failure: toFailure(error) });
}

function answer(message: FromDecoder): void {
  port.postMessage(message);
}

/**
 * The thread that owns the model. Sampling blocks it, so while a group is being sampled the messages
 * that arrived are taken between two tokens: that is how a new version is adopted in flight.
 */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { Decoder, type Policy } from '../shared/model/decoder.js';
import { decodeAdapter } from '../shared/model/lora.js';
import { readModelDirectory } from '../shared/model/model-directory.js';
import { toFailure } from './decoder-failure.js';
import type { AdapterFile, DecoderWorkerData, FromDecoder, ToDecoder } from './decoder-messages.js';
import type { GroupRequest, PolicyChoice } from './sampler.js';

if (parentPort === null) throw new Error('decoder-worker runs as a worker thread only');
const port = parentPort;
const { modelPath, threads } = workerData as DecoderWorkerData;

const policies = new Map<number, Policy>();
const abandoned = new Set<number>(); // ids of groups that nobody waits for any more
let turn = Promise.resolve(); // groups are sampled one after the other

try {
  const decoder = await Decoder.load(await readModelDirectory(modelPath), { threads });
  port.on('message', (message: ToDecoder) => {
    receive(decoder, message);
  });
  answer({ kind: 'ready' });
} catch (error) {
  answer({ kind: 'broken', failure: toFailure(error) });
}

function receive(decoder: Decoder, message: ToDecoder): void {
  switch (message.kind) {
    case 'load':
      load(message.adapter);
      return;
    case 'drop':
      policies.delete(message.version);
      return;
    case 'sample':
      turn = turn.then(() => sample(decoder, message.id, message.request, message.policy));
      return;
    case 'abort':
      abandoned.add(message.id);
      return;
  }
}

function load({ version, safetensors, rank, alpha }: AdapterFile): void {
  try {
    policies.set(version, { version, adapter: decodeAdapter(safetensors, { rank, alpha }) });
    answer({ kind: 'loaded', version });
  } catch (error) {
    answer({ kind: 'refused', version, failure: toFailure(error) });
  }
}

async function sample(
  decoder: Decoder,
  id: number,
  request: GroupRequest,
  choice: PolicyChoice,
): Promise<void> {
  try {
    let policy = loadedPolicy(choice.version);
    const rollouts = await decoder.sampleGroup(request, () => {
      drain(decoder);
      if (abandoned.has(id)) throw new Error('abandoned');
      if (choice.adoptsNewer) policy = newer(policy);
      return policy;
    });
    answer({ kind: 'sampled', id, rollouts });
  } catch (error) {
    answer({ kind: 'failed', id, failure: toFailure(error) });
  } finally {
    abandoned.delete(id);
  }
}

function loadedPolicy(version: number): Policy {
  const policy = policies.get(version);
  if (policy === undefined) throw new Error(`policy version ${version} is not loaded`);
  return policy;
}

/** The newest of `policy` and everything loaded. */
function newer(policy: Policy): Policy {
  let newest = policy;
  for (const loaded of policies.values()) if (loaded.version > newest.version) newest = loaded;
  return newest;
}

/** Takes every message that has arrived, without giving up the thread. */
function drain(decoder: Decoder): void {
  for (;;) {
    const received = receiveMessageOnPort(port) as { message: ToDecoder } | undefined;
    if (received === undefined) return;
    receive(decoder, received.message);
  }
}

function answer(message: FromDecoder): void {
  port.postMessage(message);
}

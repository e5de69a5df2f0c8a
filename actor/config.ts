import { hostname } from 'node:os';
import { z } from 'zod';
import { engineAddresses, port, number, string, int } from '../shared/service/config-fields.js';
import { natsSettings } from '../shared/broker/access.js';
import { arithmetics } from '../shared/base/arithmetic.js';
import { OnAdoption } from '../shared/model/rollout-draft.js';
import { embeddedModelPath } from '../shared/model/model-directory.js';
import { adapterSources } from '../shared/run/adapters/allowed-sources.js';
import { isEngine, SamplerKind } from '../shared/wire/actor-lease.js';
import { RunName } from '../shared/wire/run-name.js';

/** An actor's connections and sampling settings. The run's configuration says what to sample. */
export const ActorConfig = z
  .object({
    ...natsSettings,
    startPatienceSeconds: natsSettings.startPatienceSeconds.describe(
      'seconds to wait for NATS, and with --sampler tinker then for the backend, when the actor starts.',
    ),
    run: RunName.describe('name of the run to sample for.'),
    name: z
      .string()
      .regex(/^[A-Za-z0-9_-]{1,128}$/, 'expected 1 to 128 letters, digits, - or _')
      .default(() => defaultName(hostname(), process.pid)) // part of a subject and of a key
      .describe('name of this actor, unique in the run; by default host and pid.'),
    sampler: SamplerKind.default('onnx').describe(
      'where to sample: onnx in this process, tinker on the backend, vllm or sglang on an engine of your own.',
    ),
    samplerClass: z
      .enum(arithmetics)
      .optional()
      .describe(
        "arithmetic of the sampler, which bounds how far its logprobs may be from the trainer's: fp32, bf16 or fp8; " +
          'default: onnx fp32, others bf16.',
      ),
    requireCanary: z
      .boolean()
      .default(false)
      .describe('refuse versions that were published without a canary, which nothing proves.'),
    modelDir: string
      .default(embeddedModelPath)
      .describe("Hugging Face directory of the run's model; only onnx needs weights in it."),
    datasetPath: string
      .optional()
      .describe("path of the run's data on this machine, if it differs from the learner's."),
    threads: int.positive().default(1).describe('CPU threads of the onnx sampler.'),
    inFlightUpdates: z
      .boolean()
      .default(true)
      .describe('adopt a new version within a group; --no-in-flight-updates: only between groups.'),
    onAdoption: OnAdoption.optional().describe(
      'the KV cache of a rollout after it adopts a version: keep, as older weights wrote it, or reprefill, computed ' +
        'again with the new weights; default: keep with onnx. All other samplers can only reprefill.',
    ),
    backendUrl: z
      .url()
      .optional()
      .describe('Tinker server on which the learner trains; only for --sampler tinker.'),
    apiKey: string.optional().describe('key for --backend-url.'),
    engineUrl: engineAddresses
      .optional()
      .describe(
        "vLLM or SGLang servers of the run's model, separated by commas; only for --sampler vllm or sglang.",
      ),
    engineApiKey: string.optional().describe('key for --engine-url, if it has one.'),
    engineMaxLoras: int
      .min(2)
      .optional()
      .describe(
        'adapters that this actor may have loaded at once at each engine; by default as many as the engine has ' +
          'room for in one batch, which it must then say. Actors that share an engine share them.',
      ),
    adapterDir: string
      .optional()
      .describe(
        'folder for the adapters that the engine reads, under the same path there; by default in shared memory.',
      ),
    adapterSources: adapterSources
      .default('')
      .describe(
        "where adapters may be fetched from besides the run's NATS, separated by commas: https://HOST, https://*.HOST, " +
          'each perhaps with a path, or a folder; by default nowhere else.',
      ),
    splits: z
      .enum(['both', 'train', 'eval'])
      .default('both')
      .describe('which tickets to take: for training, for evaluations, or both.'),
    concurrency: z
      .union([z.literal('auto'), int.positive().max(1024)], {
        error: 'expected auto, or a number from 1 to 1024',
      })
      .default('auto')
      .describe(
        'groups in progress at once; onnx samples all waiting groups together, in waves. auto: 8 with onnx and tinker; ' +
          'with vllm and sglang as many as the engine serves well, which the actor finds out.',
      ),
    segmentTokens: int
      .nonnegative()
      .default(0)
      .describe('tokens per call of all samplers but onnx; 0: the whole answer, from one version.'),
    rolloutSeconds: number
      .min(1)
      .max(86_400)
      .optional()
      .describe(
        'time after which a rollout ends between two calls and is sent as it is, like one of --max-tokens; needs --segment-tokens; default: no limit.',
      ),
    stallSeconds: number
      .min(5)
      .max(86_400)
      .optional()
      .describe(
        'time without progress after which the sampler counts as hung and its tickets go back: onnx exits with an ' +
          'error, to be restarted (time without a processor does not count); the others give up the call; by default 10 times the longest so far, at least 60, ' +
          'and before the first 600 with onnx, else 3600. A server of vllm or sglang that draws nothing at all counts as hung ' +
          'after 10 times its longest silence, at least 10, at first 120.',
      ),
    healthHost: string.default('127.0.0.1').describe('address of /healthz, /readyz and /metrics.'),
    healthPort: port.default(0).describe('health port; 0 picks a free one (logged).'),
  })
  .check(({ value, issues }) => {
    const complain = (key: keyof typeof value, message: string) =>
      issues.push({ code: 'custom', input: value, path: [key], message });
    const why = `--sampler ${value.sampler} samples on a server`;
    const onEngine = isEngine(value.sampler);
    if (value.sampler === 'tinker') {
      if (value.backendUrl === undefined) complain('backendUrl', `${why} and needs its address`);
      if (value.apiKey === undefined) complain('apiKey', `${why} and needs its key`);
    }
    if (onEngine && value.engineUrl === undefined) {
      complain('engineUrl', `${why} and needs its address`);
    }
    for (const key of ['engineUrl', 'engineMaxLoras', 'adapterDir'] as const) {
      if (onEngine || value[key] === undefined) continue;
      complain(key, 'only --sampler vllm and sglang use an engine; remove one of the two');
    }
    if (value.rolloutSeconds !== undefined && value.segmentTokens === 0) {
      complain(
        'rolloutSeconds',
        'a rollout is cut between two calls, and this is one call; add --segment-tokens, of all samplers but onnx',
      );
    }
    if (value.sampler === 'onnx') {
      if (value.segmentTokens > 0) {
        complain(
          'segmentTokens',
          '--sampler onnx adopts between two tokens; remove one of the two',
        );
      }
    } else {
      if (value.onAdoption === 'keep') {
        complain(
          'onAdoption',
          `${why}, which reads each segment with the newest weights; use reprefill`,
        );
      }
      if (value.threads > 1) complain('threads', `${why}; remove one of the two`);
      if (!value.inFlightUpdates && value.segmentTokens > 0 && value.rolloutSeconds === undefined) {
        complain(
          'segmentTokens',
          'with --no-in-flight-updates an answer is one call, unless --rollout-seconds cuts it; remove one of the two',
        );
      }
    }
    if (!value.inFlightUpdates && value.onAdoption !== undefined) {
      complain('onAdoption', 'with --no-in-flight-updates no rollout adopts a version; remove one');
    }
  });
export type ActorConfig = z.infer<typeof ActorConfig>;

/** A name unique in the fleet, in the characters that a subject allows. */
export function defaultName(host: string, pid: number): string {
  return `${host.replace(/[^A-Za-z0-9_-]/g, '-').slice(0, 100)}-${pid}`;
}

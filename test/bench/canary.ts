import {
  forcedTexts,
  scoresOfForced,
  type CanaryTexts,
} from '../../actor/sampler/canary-scores.js';
import type { Arithmetic } from '../../shared/base/arithmetic.js';
import { createRandom } from '../../shared/base/random.js';
import { Decoder, type Policy } from '../../shared/model/decoder.js';
import { frozen } from '../../shared/model/weight-source.js';
import { Graph, type Value } from '../../shared/model/graph/graph.js';
import type { Adapter } from '../../shared/model/lora.js';
import type { Tensor } from '../../shared/model/safetensors.js';
import {
  bandOf,
  compareCanary,
  logprobBands,
  type CanaryComparison,
  type LogprobBand,
  type TokenScores,
} from '../../shared/rl/canary.js';
import type { Canary } from '../../shared/wire/canary.js';
import {
  canariesOf,
  copyOf,
  embeddedSetting,
  swapped,
  trainVersions,
  type Setting,
} from './canary-policies.js';
import type { Figure } from './main.js';

const steps = Number(process.env['CANARY_STEPS'] ?? 12);
const groups = 16;
/** The bands by which a fault may be caught. */
const bands: Readonly<Record<string, LogprobBand>> = {
  fp32: logprobBands.fp32,
  bf16: logprobBands.bf16,
  'fp32 with a rounded adapter': bandOf('fp32', true),
};
/** `CANARY_LOADS=10000` is the measurement in docs/policy-identity.md. */
const loads = Number(process.env['CANARY_LOADS'] ?? 200);

/**
 * Measures on the embedded model how far the logprobs of a canary are from those of an honest sampler, and from those of
 * samplers with a fault: the smallest difference over the versions, in nats, which is what a band must be below to catch
 * the fault at every version, and at how many versions the bands catch it.
 */
export async function benchCanary(): Promise<Figure[]> {
  const setting = await embeddedSetting();
  const versions = await trainVersions(setting, { steps, groups, seed: 0 });
  const others = await trainVersions(setting, { steps, groups, seed: 1 });
  const canaries = await canariesOf(
    setting,
    versions.map(({ adapter }) => adapter),
  );
  const figures: Figure[] = [];
  const report = (what: string, value: number, unit = 'nats') =>
    figures.push({ what, value, unit });
  const own = (version: number) => versions[version]!.adapter;

  /** The scores of a fault at each version from the first on; version 0 is the base. */
  const add = async (
    what: string,
    fault: (version: number) => Adapter | (() => Policy),
    { decoder = setting.decoder, temperature = 1, tokens = Infinity } = {},
  ) => {
    const found: [Canary, TokenScores][] = [];
    for (let version = 1; version <= steps; version++) {
      const canary = reduced(canaries[version]!, tokens);
      const asked = { ...canary, temperature: temperature * canary.temperature };
      found.push([canary, await scored(decoder, asked, fault(version))]);
    }
    const compared = (band: LogprobBand) =>
      found.map(([{ logprobs, earlier }, scores]) =>
        compareCanary(logprobs, scores, band, earlier),
      );
    const any = compared(logprobBands.fp32);
    report(`${what}: largest`, Math.min(...any.map(({ difference }) => difference)));
    report(`${what}: mean`, Math.min(...any.map(({ mean }) => mean)));
    for (const [kind, band] of Object.entries(bands)) {
      const caught = compared(band).filter(({ isReproduced }) => !isReproduced).length;
      report(`${what}: caught as ${kind}, of ${steps}`, caught, 'versions');
    }
  };
  const scaled = (version: number, by: number) => {
    const adapter = own(version);
    return { ...adapter, alpha: adapter.alpha * by };
  };
  const quantized = (round: (data: Float32Array) => Float32Array) =>
    new Decoder(
      setting.directory.config,
      () => Promise.resolve(frozen(roundedWeights(setting, round))),
      1,
    );
  await add('adapter not loaded', () => own(0));
  await add('previous version', (version) => own(version - 1));
  await add("another run's adapter", (version) => others[version]!.adapter);
  await add('half the alpha', (version) => scaled(version, 0.5));
  await add('alpha 1 % too large', (version) => scaled(version, 1.01));
  await add('gate and up swapped', (version) => swapped(own(version), 'gate_proj', 'up_proj'));
  await add('temperature 10 % too high', own, { temperature: 1.1 });
  await add('temperature 1 % too high', own, { temperature: 1.01 });
  await add('prefix cache of the previous version', (version) => stalePrefix(own, version));
  await add('weights in int8, by tensor', own, { decoder: quantized(int8) });
  await add('weights in bf16', own, { decoder: quantized(bf16) });
  await add('adapter in bf16', (version) => copyOf(own(version), bf16));
  for (const tokens of [4, 8, 16]) {
    await add(`previous version, ${tokens} tokens`, (version) => own(version - 1), { tokens });
  }
  for (const version of [1, steps]) {
    const nats = await kl(setting, versions, version);
    report(`KL a token of version ${version} from the previous`, nats);
  }
  const adapters = versions.map(({ adapter }) => adapter);
  const reportHonest = async (
    kind: Arithmetic,
    loads: number,
    decoder: Decoder,
    isRounded = kind === 'bf16',
  ) => {
    const found = await honestLoads(setting, adapters, { kind, loads, decoder, isRounded });
    const arithmetic = isRounded && kind === 'fp32' ? 'fp32 with a rounded adapter' : kind;
    const what = `honest sampler in ${arithmetic}, ${loads} loads`;
    report(`${what}: largest`, Math.max(...found.map(({ difference }) => difference)));
    report(`${what}: mean`, Math.max(...found.map(({ mean }) => mean)));
    report(`${what}: refused`, found.filter(({ isReproduced }) => !isReproduced).length, 'loads');
  };
  await withRounding(() => reportHonest('bf16', Math.ceil(loads / 10), quantized(bf16)));
  await reportHonest('fp32', loads, setting.decoder);
  await reportHonest('fp32', loads, setting.decoder, true);
  report('rounded adapter: largest mean of a group', await largestGroupGap(setting, versions));
  return figures;
}

async function scored(decoder: Decoder, canary: CanaryTexts, by: Adapter | (() => Policy)) {
  const texts = forcedTexts(canary);
  const policy = typeof by === 'function' ? by : () => ({ version: 0, adapter: by });
  const sampled = await decoder.sampleGroups(
    texts.map(({ request }) => request),
    policy,
  );
  return scoresOfForced(
    texts,
    sampled.map((rollouts) => rollouts![0]!),
  );
}

/** The canary with only the first of its tokens. */
function reduced(canary: Canary, tokens: number): Canary {
  const every = Math.max(1, Math.ceil(canary.places.length / tokens));
  const kept = canary.places.flatMap((_, i) => (i % every === 0 ? [i] : []));
  const some = (logprobs: Float32Array) => Float32Array.from(kept, (i) => logprobs[i]!);
  return {
    ...canary,
    places: kept.map((i) => canary.places[i]!),
    logprobs: some(canary.logprobs),
    earlier: canary.earlier?.map((one) => ({ ...one, logprobs: some(one.logprobs) })),
  };
}

/** The first call reads the prompts; from the second on, tokens are decoded. */
function stalePrefix(own: (version: number) => Adapter, version: number): () => Policy {
  let calls = 0;
  return () => {
    const used = calls++ === 0 ? version - 1 : version;
    return { version: used, adapter: own(used) };
  };
}

function roundedWeights(
  { weights }: Setting,
  round: (data: Float32Array) => Float32Array,
): Map<string, Tensor> {
  return new Map(
    [...weights].map(([name, { dims, data }]) => [name, { dims, data: round(data) }] as const),
  );
}

function int8(data: Float32Array): Float32Array {
  const scale = data.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 127;
  return data.map((value) => Math.round(value / scale) * scale);
}

/** To the nearest bfloat16. */
function bf16(data: Float32Array): Float32Array {
  const bits = new Uint32Array(data.slice().buffer);
  bits.forEach(
    (value, i) => (bits[i] = ((value + 0x7fff + ((value >>> 16) & 1)) & 0xffff0000) >>> 0),
  );
  return new Float32Array(bits.buffer);
}

/** Runs `work` while graphs are built that round what matrix products and residual sums give to bfloat16. */
async function withRounding<T>(work: () => T | Promise<T>): Promise<T> {
  // oxlint-disable-next-line typescript/unbound-method -- restored below, and called with its graph
  const { apply } = Graph.prototype;
  Graph.prototype.apply = function (this: Graph, op, inputs, output, attributes): Value {
    const value = apply.call(this, op, inputs, output, attributes);
    if ((op !== 'MatMul' && op !== 'Add') || value.type !== 'float32') return value;
    const rounded = apply.call(this, 'Cast', [value], { dims: value.dims }, { to: 16 });
    return apply.call(this, 'Cast', [rounded], { dims: value.dims }, { to: 1 });
  };
  try {
    return await work();
  } finally {
    Graph.prototype.apply = apply;
  }
}

/** Mean over the tokens that a version samples of r - 1 - ln r, with r the ratio of the previous version's probability to its own. */
async function kl(
  { trainer, settings }: Setting,
  versions: Awaited<ReturnType<typeof trainVersions>>,
  version: number,
): Promise<number> {
  let [sum, tokens] = [0, 0];
  for (const { prompt, rollouts } of versions[version]!.sampled) {
    const data = rollouts.map((rollout) => {
      const text = Int32Array.of(...prompt, ...rollout.tokens);
      return { tokens: text.slice(0, -1), targetTokens: text.slice(1), inputs: {} };
    });
    const before = await trainer.forward(
      versions[version - 1]!.adapter,
      data,
      settings.temperature,
    );
    rollouts.forEach(({ behaviorLogprobs }, i) => {
      behaviorLogprobs.forEach((logprob, t) => {
        const difference = before[i]![prompt.length - 1 + t]! - logprob;
        sum += Math.expm1(difference) - difference;
        tokens++;
      });
    });
  }
  return sum / tokens;
}

interface HonestLoads {
  readonly kind: Arithmetic; // of the sampler
  readonly loads: number;
  readonly decoder: Decoder;
  readonly isRounded: boolean; // whether its adapter is in bf16
}

/** The largest mean distance, over the groups of all versions, of the rounded adapter's logprobs from the adapter's own. */
async function largestGroupGap(
  { trainer, settings }: Setting,
  versions: Awaited<ReturnType<typeof trainVersions>>,
): Promise<number> {
  let largest = 0;
  for (const { adapter, sampled } of versions) {
    const rounded = copyOf(adapter, bf16);
    for (const { prompt, rollouts } of sampled) {
      const data = rollouts.map((rollout) => {
        const text = Int32Array.of(...prompt, ...rollout.tokens);
        return { tokens: text.slice(0, -1), targetTokens: text.slice(1), inputs: {} };
      });
      const logprobs = await trainer.forward(rounded, data, settings.temperature);
      const gaps = rollouts.flatMap(({ behaviorLogprobs }, i) =>
        Array.from(behaviorLogprobs, (own, t) =>
          Math.abs(logprobs[i]![prompt.length - 1 + t]! - own),
        ),
      );
      largest = Math.max(largest, gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length);
    }
  }
  return largest;
}

/** Many loads, every one of another adapter, mixed from two versions. */
async function honestLoads(
  setting: Setting,
  adapters: readonly Adapter[],
  { kind, loads, decoder, isRounded }: HonestLoads,
): Promise<CanaryComparison[]> {
  const random = createRandom(`honest loads in ${kind}`);
  const found: CanaryComparison[] = [];
  for (let load = 0; load < loads; load++) {
    const [one, other] = [random.int(adapters.length), random.int(adapters.length)];
    const share = random.next();
    const mixed = copyOf(adapters[one]!, (data, key) => {
      const second = adapters[other]!.tensors.get(key)!.data;
      return data.map((value, i) => share * value + (1 - share) * second[i]!);
    });
    // Two versions that it must not be taken for.
    const parts = [adapters[one]!, adapters[other]!, mixed];
    const canary = (await canariesOf(setting, parts))[2]!;
    const scores = await scored(decoder, canary, isRounded ? copyOf(mixed, bf16) : mixed);
    const band = bandOf(kind, isRounded && kind === 'fp32');
    found.push(compareCanary(canary.logprobs, scores, band, canary.earlier));
  }
  return found;
}

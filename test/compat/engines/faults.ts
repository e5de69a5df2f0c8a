import { CanaryCheck } from '../../../actor/canary-check.js';
import { CanaryNotReproduced } from '../../../actor/sampler/refusal.js';
import { connectEngine } from '../../../actor/sampler/connect-engine.js';
import { EngineSampler } from '../../../actor/sampler/engine-sampler.js';
import type { Arithmetic } from '../../../shared/base/arithmetic.js';
import { UserError } from '../../../shared/base/errors.js';
import { mean } from '../../../shared/base/statistics.js';
import { type Adapter, encodeAdapter } from '../../../shared/model/lora.js';
import { compareCanary, logprobBands, type TokenScores } from '../../../shared/rl/canary.js';
import type { Canary } from '../../../shared/wire/canary.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import { unproven } from '../../actor/values.js';
import {
  canariesOf,
  embeddedSetting,
  type Setting,
  type TrainedVersion,
  trainVersions,
} from '../../bench/canary-policies.js';
import { silent } from '../../support/log.js';
import { type PassedRequest, RecordingProxy } from '../../support/recording-proxy.js';
import { atLeast, atMost, type SuiteContext } from '../suite.js';
import {
  type Body,
  type Dialect,
  dialects,
  type Fault,
  faultsOf,
  type LoadedName,
  versionIn,
} from './injected-faults.js';
import { PublishedAdapters } from './published-adapters.js';
import { sglangPython, startSglang } from './sglang.js';
import { chosenClasses, served, startVllm, vllmPython } from './vllm.js';

const versions = Number(process.env['ENGINE_VERSIONS'] ?? 12);
const groups = 16;
const longText = 60; // tokens: a block of the prefix cache and all places, within the model's 64

/** How far the engine is from the canary of one version. */
interface Found {
  readonly largest: number; // nats
  readonly mean: number; // without the largest quarter, nats
  readonly isRefused: boolean;
}

/**
 * Puts faults between the actor and a real vLLM, in float32 and in bfloat16, by a proxy that changes requests and by
 * wrong adapters, and counts at how many versions of a trained policy the actor's own canary check refuses to sample. Only
 * float32 must catch them all; what a coarser class misses is a result.
 */
export async function testVllmFaults(context: SuiteContext): Promise<void> {
  if (context.isShort) throw new UserError('vLLM takes minutes to install and to start');
  const { signal, report, note } = context;
  const python = await vllmPython(context);
  const policies = await trainPolicies(context);
  for (const arithmetic of chosenClasses('fp32,bf16')) {
    await using server = await startVllm(python, signal, served[arithmetic]);
    const { url } = server;
    await tryFaults(context, policies, { dialect: dialects.vllm, arithmetic, url });
    const tried = (fault: Fault, as: Arithmetic) =>
      tryFault(policies, { dialect: dialects.vllm, fault, arithmetic: as, url, signal });
    for (const finer of finerThan[arithmetic]) {
      const what = `${arithmetic} claimed as ${finer}`;
      const claimed = await tried({ what }, finer);
      note(`  ${what}: ${smallestOf(claimed)}`);
      if (finer !== 'fp32') continue;
      report(atLeast(`${what}: caught of ${versions}`, refusedOf(claimed), versions));
    }
    const gaps = await groupGaps(policies, url, signal);
    note(`  mean difference of a group's logprobs from the trainer's, in nats a token:`);
    note(`    of the version that it names: at most ${figure(Math.max(...gaps.own))}`);
    note(`    of the version before it: at least ${figure(Math.min(...gaps.before))}`);
    note(`    of the base: at least ${figure(Math.min(...gaps.base))}`);
  }
}

/** The same faults between the actor and a real SGLang, which serves in float32 on a CPU. */
export async function testSglangFaults(context: SuiteContext): Promise<void> {
  if (context.isShort) throw new UserError('SGLang takes minutes to install and to start');
  await using server = await startSglang(await sglangPython(context), context.signal);
  const where = { dialect: dialects.sglang, arithmetic: 'fp32', url: server.url } as const;
  await tryFaults(context, await trainPolicies(context), where);
}

/** Tries no fault, and then each. */
async function tryFaults(
  { signal, report, note }: SuiteContext,
  policies: Policies,
  where: Pick<Trial, 'dialect' | 'arithmetic' | 'url'>,
): Promise<void> {
  const { dialect, arithmetic } = where;
  const tried = (fault: Fault) => tryFault(policies, { ...where, fault, signal });
  const honest = await tried({ what: 'nothing' });
  note(`  ${dialect.kind} in ${arithmetic}, no fault: ${largestOf(honest)}`);
  report(atMost(`false alarms in ${arithmetic}, of ${versions}`, refusedOf(honest), 0));
  for (const fault of faultsOf(policies, dialect)) {
    const found = await tried(fault);
    note(`  ${dialect.kind} in ${arithmetic}, ${fault.what}: ${smallestOf(found)}`);
    if (arithmetic !== 'fp32') continue;
    const what = `${fault.what}, in ${arithmetic}: caught of ${versions}`;
    report(atLeast(what, refusedOf(found), versions));
  }
}

async function trainPolicies({ folder }: SuiteContext): Promise<Policies> {
  const setting = await embeddedSetting();
  const own = await trainVersions(setting, { steps: versions, groups, seed: 0 });
  const others = await trainVersions(setting, { steps: versions, groups, seed: 1 });
  const adapters = own.map(({ adapter }) => adapter);
  return {
    ...{ setting, own, others, folder },
    canaries: await canariesOf(setting, adapters),
    longCanaries: await canariesOf({ ...setting, texts: longTexts(setting) }, adapters),
  };
}

/** The classes that it may claim to be of, and is not. */
const finerThan: Readonly<Record<Arithmetic, readonly Arithmetic[]>> = {
  fp32: [],
  bf16: ['fp32'],
  fp8: ['bf16', 'fp32'],
};

/** Versions of a policy with their canaries, and those of another run. */
interface Policies {
  readonly setting: Setting;
  readonly own: readonly TrainedVersion[];
  readonly others: readonly TrainedVersion[];
  readonly folder: string; // that the engine can read
  readonly canaries: readonly Canary[];
  readonly longCanaries: readonly Canary[]; // of texts that are longer than a block of the engine's cache
}

/** Texts of `longText` tokens, of those of the usual canaries one behind the other. */
function longTexts({ texts }: Setting): Int32Array<ArrayBuffer>[] {
  return texts.map((_, i) => {
    const tokens = [...texts.slice(i), ...texts].flatMap((text) => [...text]);
    return Int32Array.from(tokens.slice(0, longText));
  });
}

/** Loads each version behind the one before it, as a run does, and has the actor's check look at it. */
async function tryFault(
  { setting, own, ...policies }: Policies,
  { dialect, fault, arithmetic, url, signal }: Trial,
): Promise<Found[]> {
  const known = new Map<number, LoadedName>();
  const canaries = fault.needsLongTexts === true ? policies.longCanaries : policies.canaries;
  await using proxy = await RecordingProxy.before(url, undefined, {}, rulesOf(fault, known));
  await using actor = await connect(setting, dialect.kind, proxy.url, signal);
  const { sampler, publish } = actor;
  const check = new CanaryCheck(sampler, arithmetic);
  const found: Found[] = [];
  for (let version = 0; version <= versions; version++) {
    const adapter = version === 0 ? own[0]!.adapter : fault.adapter?.(version);
    const canary = canaries[version]!;
    const published = { ...publish(version, adapter ?? own[version]!.adapter), canary };
    let scores: TokenScores | undefined;
    let isRefused = false;
    try {
      await sampler.load(
        published,
        (score, ending, where) =>
          check.require(
            published,
            async (...asked) => (scores = await score(...asked)),
            ending,
            where,
          ),
        signal,
      );
    } catch (error) {
      if (!(error instanceof CanaryNotReproduced)) throw error;
      isRefused = true;
      await sampler.load(published, unproven, signal); // the next version needs it as its predecessor
    }
    if (version > 0) {
      const { difference: largest, mean } = compareCanary(
        canary.logprobs,
        scores!,
        logprobBands[arithmetic],
      );
      found.push({ largest, mean, isRefused });
      sampler.drop(version - 1);
    }
  }
  return found;
}

interface Trial {
  readonly dialect: Dialect;
  readonly fault: Fault;
  readonly arithmetic: Arithmetic; // of which the actor believes the engine to be
  readonly url: string;
  readonly signal: AbortSignal;
}

/** An actor's engine and sampler, with the adapters that are published to it. */
async function connect(setting: Setting, kind: Dialect['kind'], url: string, signal: AbortSignal) {
  const { directory, tokenizer, settings, texts } = setting;
  const { config: model } = directory;
  const adapters = new PublishedAdapters();
  const engine = await connectEngine({
    ...{ kind, urls: [url], apiKey: undefined, adapterDir: undefined },
    ...{ run: 'faults', actor: 'compat', maxLoras: undefined, model, rank: settings.loraRank },
    ...{ groupSize: 1, maxStepsOffPolicy: 2, temperature: settings.temperature },
    ...{ prompt: texts[0]!, log: silent, signal, waitingFor: () => undefined },
    adapters,
  });
  const sampler = new EngineSampler(engine, {
    ...{ tokenizer, concurrency: 8, segmentTokens: 0, log: silent },
  });
  const publish = (version: number, adapter: Adapter): PolicyManifest =>
    adapters.publish(version, encodeAdapter(adapter).safetensors, adapter);
  return { sampler, publish, [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose]() };
}

function rulesOf({ rewrite }: Fault, known: Map<number, LoadedName>) {
  return {
    request: (given: PassedRequest) => {
      if (!given.isJson) return Promise.resolve(given);
      const call = given.path.split('/').at(-1)!;
      const body = JSON.parse(given.body.toString()) as Body;
      if (call === 'load_lora_adapter') {
        const [name, folder] = [String(body['lora_name']), String(body['lora_path'])];
        known.set(versionIn(name), { name, folder });
      }
      const changed = rewrite?.(call, body, known) ?? body;
      return Promise.resolve({ ...given, body: Buffer.from(JSON.stringify(changed)) });
    },
    answer: <Answer>(_given: unknown, _sent: unknown, answer: Answer) => Promise.resolve(answer),
  };
}

/**
 * What the audit of versions compares: groups that the engine has sampled with each version, and the trainer's logprobs of the same
 * tokens by that version, by the one before it and by the base.
 */
async function groupGaps(
  { setting, own }: Policies,
  url: string,
  signal: AbortSignal,
): Promise<Readonly<Record<'own' | 'before' | 'base', number[]>>> {
  const { trainer, settings, tokenizer } = setting;
  const gaps = { own: [] as number[], before: [] as number[], base: [] as number[] };
  await using actor = await connect(setting, 'vllm', url, signal);
  const { sampler, publish } = actor;
  for (let version = 1; version <= versions; version++) {
    const { adapter, sampled } = own[version]!;
    await sampler.load(publish(version, adapter), unproven, signal);
    sampler.admit(version);
    for (const [seed, { prompt }] of sampled.entries()) {
      const { temperature, maxTokens } = settings;
      const request = { prompt, count: 16, temperature, maxTokens, seed };
      const rollouts = await sampler.sample(
        { ...request, stopTokenIds: tokenizer.eosTokenIds },
        { version, adoptsNewer: false },
        signal,
      );
      const data = rollouts.map(({ tokens }) => {
        const text = Int32Array.of(...prompt, ...tokens);
        return { tokens: text.slice(0, -1), targetTokens: text.slice(1), inputs: {} };
      });
      const claimed = { own: version, before: version - 1, base: 0 };
      for (const [what, named] of Object.entries(claimed)) {
        const logprobs = await trainer.forward(own[named]!.adapter, data, temperature);
        const distances = rollouts.flatMap(({ behaviorLogprobs }, i) =>
          Array.from(behaviorLogprobs, (logprob, t) =>
            Math.abs(logprob - logprobs[i]![prompt.length - 1 + t]!),
          ),
        );
        gaps[what as keyof typeof gaps].push(mean(distances));
      }
    }
    sampler.drop(version);
  }
  return gaps;
}

function refusedOf(found: readonly Found[]): number {
  return found.filter(({ isRefused }) => isRefused).length;
}

function largestOf(found: readonly Found[]): string {
  const [largest, most] = [found.map((one) => one.largest), found.map((one) => one.mean)];
  return `largest ${figure(Math.max(...largest))}, mean ${figure(Math.max(...most))}, at most`;
}

function smallestOf(found: readonly Found[]): string {
  const [largest, least] = [found.map((one) => one.largest), found.map((one) => one.mean)];
  const caught = `${refusedOf(found)} of ${found.length} refused`;
  return `largest ${figure(Math.min(...largest))}, mean ${figure(Math.min(...least))}, at least; ${caught}`;
}

function figure(nats: number): string {
  return nats.toPrecision(3);
}

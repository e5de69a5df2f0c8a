import { Activity } from '../../actor/activity.js';
import { CanaryCheck } from '../../actor/canary-check.js';
import { EarlyCancel } from '../../actor/early-cancel.js';
import { joinRun } from '../../actor/join-run.js';
import { OnnxSampler } from '../../actor/sampler/onnx-sampler.js';
import { leaseOf, renewLease } from '../../actor/lease.js';
import { PolicyFollower } from '../../actor/policy-follower.js';
import { sampleWhileTrusted } from '../../actor/sample-tickets.js';
import type { Prove, Sampler } from '../../actor/sampler/sampler.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import { TaskScope } from '../../shared/base/task-scope.js';
import type { Broker } from '../../shared/broker/broker.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import type { Arithmetic } from '../../shared/base/arithmetic.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { silent } from './log.js';

const nothing: GroupRequest = {
  ...{
    prompt: Int32Array.of(0),
    count: 1,
    temperature: 1,
    maxTokens: 1,
    stopTokenIds: [],
    seed: 0,
  },
};

/**
 * An actor in this process that samples something other than its tickets request, or claims so: everything
 * is real except that `alter` changes each request and `answer` each sampled group. It runs until
 * `signal` aborts.
 */
export async function runAlteredActor(
  broker: Broker,
  options: {
    readonly name: string;
    readonly modelDir: string;
    readonly alter: (request: GroupRequest) => GroupRequest;
    readonly concurrency?: number; // concurrent groups; default 2
    /** What it samples with instead of a version: another manifest, and the bytes that it fetches for it. */
    readonly load?: (manifest: PolicyManifest) => Promise<readonly [PolicyManifest, Uint8Array]>;
    /** Whether it would alter the reading of a canary as well; by default only that of tickets. */
    readonly isConsistent?: boolean;
    readonly arithmetic?: Arithmetic; // that it claims; default fp32
    /** What it sends instead of what it has drawn; `again` draws another group for the same ticket. */
    readonly answer?: (
      rollouts: readonly SampledRollout[],
      again: () => Promise<readonly SampledRollout[]>,
    ) => Promise<SampledRollout[]>;
  },
  signal: AbortSignal,
): Promise<void> {
  const { name: actor, modelDir, alter, answer, load, isConsistent, concurrency = 2 } = options;
  const runConfig = await new RunConfigStore(broker).wait(signal);
  const here = { modelDir, datasetPath: undefined, sampler: 'onnx' } as const;
  const { task, dataset, tokenizer, directory } = await joinRun(runConfig, here);
  const fetched = new Map<number, Promise<Uint8Array>>(); // by version, where it is another
  await using own = await OnnxSampler.start({
    log: silent,
    onAdoption: 'keep',
    ...{ directory: directory!, threads: 1, concurrency, signal },
    adapters: {
      fetchAdapter: (manifest) =>
        fetched.get(manifest.version) ?? broker.policy.fetchAdapter(manifest),
    },
  });
  const sampler: Sampler = {
    kind: own.kind,
    limit: own.limit,
    maxContext: own.maxContext,
    maxVersions: own.maxVersions,
    trouble: own.trouble,
    engine: own.engine,
    usualArithmetic: own.usualArithmetic,
    servers: own.servers,
    load: async (manifest, prove, ending) => {
      const proveAltered: Prove = (score, ...more) =>
        prove(
          (canary, scoring) => {
            const { temperature } = alter({ ...nothing, temperature: canary.temperature });
            return score(isConsistent === true ? { ...canary, temperature } : canary, scoring);
          },
          ...more,
        );
      if (load === undefined) return own.load(manifest, proveAltered, ending);
      const [loaded, bytes] = await load(manifest);
      fetched.set(manifest.version, Promise.resolve(bytes));
      return own.load({ ...loaded, version: manifest.version }, proveAltered, ending);
    },
    admit: (version) => {
      own.admit(version);
    },
    drop: (version) => {
      own.drop(version);
    },
    sample: async (request, ...more) => {
      const asked = alter(request);
      const rollouts = await own.sample(asked, ...more);
      const again = () => own.sample({ ...asked, seed: asked.seed + 1 }, ...more);
      return answer === undefined ? rollouts : await answer(rollouts, again);
    },
    ready: () => own.ready(),
    guard: (ending) => own.guard(ending),
    [Symbol.asyncDispose]: () => own[Symbol.asyncDispose](),
  };
  const earlyCancel = new EarlyCancel();
  const canaries = new CanaryCheck(sampler, options.arithmetic ?? 'fp32');
  const policies = new PolicyFollower({
    ...{ store: broker.policy, sampler, canaries, log: silent },
    onPublished: (manifest) => {
      earlyCancel.published(manifest);
    },
  });
  const prompts = { task, dataset, tokenizer, maxContext: own.maxContext };
  const activity = new Activity(
    () => performance.now(),
    () => undefined,
  );
  const sampling = {
    ...{ broker, actor, prompts, sampler, policies, canaries, activity, earlyCancel, log: silent },
    ...{
      inFlightUpdates: true,
      splits: ['train'] as const,
      onGroup: () => undefined,
    },
  };
  const lease = () =>
    leaseOf({ actor, sampler, policies, activity, groups: 0, abandoned: {} }, Date.now());
  await TaskScope.run(signal, [
    (ending) => policies.follow(ending),
    (ending) => renewLease(broker.actors, lease, silent, ending),
    (ending) => sampleWhileTrusted(sampling, ending),
  ]);
}

import { Activity } from '../../actor/activity.js';
import { EarlyCancel } from '../../actor/early-cancel.js';
import { joinRun } from '../../actor/join-run.js';
import { OnnxSampler } from '../../actor/sampler/onnx-sampler.js';
import { PolicyFollower } from '../../actor/policy-follower.js';
import { sampleTickets } from '../../actor/sample-tickets.js';
import type { Sampler } from '../../actor/sampler/sampler.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import { TaskScope } from '../../shared/base/task-scope.js';
import type { Broker } from '../../shared/broker/broker.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { silent } from './broker.js';

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
    readonly answer?: (rollouts: readonly SampledRollout[]) => Promise<SampledRollout[]>;
  },
  signal: AbortSignal,
): Promise<void> {
  const { name: actor, modelDir, alter, answer, concurrency = 2 } = options;
  const runConfig = await new RunConfigStore(broker).wait(signal);
  const here = { modelDir, datasetPath: undefined, sampler: 'onnx' } as const;
  const { task, dataset, tokenizer, directory } = await joinRun(runConfig, here);
  await using own = await OnnxSampler.start({
    log: silent,
    onAdoption: 'keep',
    ...{ directory: directory!, threads: 1, concurrency, policies: broker.policy, signal },
  });
  const sampler: Sampler = {
    kind: own.kind,
    concurrency: own.concurrency,
    maxContext: own.maxContext,
    maxVersions: own.maxVersions,
    trouble: own.trouble,
    load: (...asked) => own.load(...asked),
    drop: (version) => {
      own.drop(version);
    },
    sample: async (request, ...more) => {
      const rollouts = await own.sample(alter(request), ...more);
      return answer === undefined ? rollouts : await answer(rollouts);
    },
    ready: () => own.ready(),
    guard: (ending) => own.guard(ending),
    [Symbol.asyncDispose]: () => own[Symbol.asyncDispose](),
  };
  const earlyCancel = new EarlyCancel();
  const policies = new PolicyFollower({
    ...{ store: broker.policy, sampler, log: silent },
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
    ...{ broker, actor, prompts, sampler, policies, activity, earlyCancel, log: silent },
    ...{
      trainOn: 'rollouts' as const,
      inFlightUpdates: true,
      splits: ['train'] as const,
      onGroup: () => undefined,
    },
  };
  await TaskScope.run(signal, [
    (ending) => policies.follow(ending),
    (ending) => sampleTickets(sampling, ending),
  ]);
}

import type { Broker } from '../../shared/broker/broker.js';
import type { PolicyAdapter } from '../../shared/broker/policy-store.js';
import { UserError } from '../../shared/base/errors.js';
import type { RunConfigStore } from '../../shared/run/run-config-store.js';
import {
  bestState,
  type Checkpoint,
  type SavedState,
  withComparableScores,
} from '../../shared/wire/ledger.js';
import { objectOf, type PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';

/** A version of a run's policy, and where its weights are. */
export interface FoundVersion {
  readonly config: RunConfig;
  readonly version: number;
  readonly step: number; // the newest one in its weights; 0: the base policy
  /** As the run's actors sampled with it, while it is kept. */
  readonly samplerPath: string | undefined;
  readonly adapter: PolicyAdapter | undefined; // from the run's object store, if it is there
  readonly files?: string | undefined; // what the backend saved for download, if it did
  /** The saved state to restore it from, if it is not kept; undefined for version 0 of a run that began from the base model. */
  readonly statePath: string | undefined;
}

/** A version by its number, the newest, or the best of those that were evaluated. */
export type AskedVersion = number | 'latest' | 'best';

type Store = Pick<Broker, 'run' | 'policy' | 'ledger' | 'events'> & {
  readonly config: Pick<RunConfigStore, 'get'>;
};

/**
 * Finds a version among those that the run keeps for sampling, else among its saved states.
 *
 * @param savedStates the states that the backend has besides the one that the ledger names.
 * @throws {UserError} if the store does not have the run, or the run no longer has the version.
 */
export async function findVersion(
  store: Store,
  asked: AskedVersion,
  savedStates: (ledgerPath: string | undefined) => Promise<readonly SavedState[]>,
  signal: AbortSignal,
): Promise<FoundVersion> {
  const config = await readConfig(store);
  const wanted = asked === 'best' ? await bestVersion(store, signal) : asked;
  const isLatest = wanted === 'latest';
  const read = () => (isLatest ? store.policy.current() : store.policy.at(wanted));
  const sampled = await readPolicy(store.policy, read);
  const version = isLatest ? sampled?.version : wanted;
  if (version === undefined) {
    throw new UserError(`the run ${store.run} has not published a version yet`);
  }
  // Each is read after the one before, since a run may make steps meanwhile, and writes a step before its checkpoint.
  const checkpoint = await store.ledger.read();
  const history = await readSteps(store, signal);
  if (sampled !== undefined) {
    const step = hasWeights(checkpoint, version) ? checkpoint.step : history.stepOf(version);
    return { config, ...sampled, step, statePath: undefined };
  }

  const states = new Map<number, SavedState>();
  // The ledger also names those of earlier sessions, each a training run of its own at a server.
  const known = [...(checkpoint?.states ?? []), ...(await savedStates(checkpoint?.statePath))];
  for (const state of known) {
    const made = history.versionOf(state.step);
    if (made !== undefined) states.set(made, state);
  }
  if (checkpoint !== undefined) {
    states.set(checkpoint.version, { path: checkpoint.statePath, step: checkpoint.step });
  }
  const state = states.get(version);
  if (state === undefined && version === 0) {
    // It need not be saved: an untrained adapter changes nothing, and the run keeps what it began from.
    const unsaved = { samplerPath: undefined, adapter: undefined, statePath: config.from?.path };
    return { config, version, step: 0, ...unsaved };
  }
  if (state === undefined) {
    const kept = await store.policy.versions();
    throw new UserError(noSuchVersion(store.run, version, kept, [...states.keys()]));
  }
  const { step, path: statePath } = state;
  return { config, version, step, samplerPath: undefined, adapter: undefined, statePath };
}

/** Whether a version has the weights of a checkpoint: as it was saved, or published again since. */
function hasWeights(checkpoint: Checkpoint | undefined, version: number): checkpoint is Checkpoint {
  if (checkpoint === undefined) return false;
  const { version: saved, rewinds = [] } = checkpoint;
  return saved === version || rewinds.some(({ from, to }) => from === version && to === saved);
}

/** The version of the saved state with the best evaluation, which a run always keeps. */
async function bestVersion(store: Store, signal: AbortSignal): Promise<number> {
  const states = (await store.ledger.read())?.states ?? [];
  const history = await readSteps(store, signal);
  // Older learners listed scores over any number of problems.
  const best = bestState(withComparableScores(states, history.problems));
  const version = best === undefined ? undefined : history.versionOf(best.step);
  if (version !== undefined) return version;
  throw new UserError(
    `no saved version of run ${store.run} has been evaluated; ask for --version latest`,
  );
}

/** What actors sample with. A run in progress may retire it between two reads; then it is read again. */
async function readPolicy(
  policy: Store['policy'],
  read: () => Promise<PolicyManifest | undefined>,
): Promise<Pick<FoundVersion, 'version' | 'samplerPath' | 'adapter' | 'files'> | undefined> {
  for (let manifest = await read(); manifest !== undefined;) {
    const { version, samplerPath, adapter } = manifest;
    const found = { version, samplerPath, files: adapter?.files };
    if (adapter === undefined || objectOf(adapter) === undefined) {
      return { ...found, adapter: undefined }; // the backend has it too
    }
    try {
      const bytes = await policy.fetchAdapter(manifest);
      return { ...found, adapter: { bytes, rank: adapter.rank, alpha: adapter.alpha } };
    } catch (caught) {
      manifest = await read();
      if (manifest?.version === version) throw caught;
    }
  }
  return undefined;
}

async function readConfig({ run, config }: Store): Promise<RunConfig> {
  const found = await config.get();
  if (found === undefined) throw new UserError(`the NATS server knows no run ${run}`);
  return found;
}

/**
 * The version that each step made, without the steps that were undone by a crash before another was trained, and the
 * number of held-out problems that each was evaluated on.
 */
async function readSteps({ events }: Store, signal: AbortSignal) {
  const versions: [step: number, version: number][] = [[0, 0]]; // both rising
  const madeBy = new Map<number, number>(); // step by version, also of undone steps
  const evals: EvalResult[] = [];
  for await (const event of events.past(signal)) {
    if (event.kind === 'eval') evals.push(event.result);
    if (event.kind !== 'step') continue;
    const { step, version } = event;
    while (versions.at(-1)![0] >= step) versions.pop();
    versions.push([step, version]);
    madeBy.set(version, step);
  }
  const versionOf = (step: number): number | undefined =>
    versions.find(([made]) => made === step)?.[1];
  /** Restored weights are published as a new version, whose step is the last one made before it. */
  const stepOf = (version: number): number =>
    madeBy.get(version) ?? versions.findLast(([, made]) => made <= version)?.[0] ?? 0;
  const problems = new Map<number, number>(); // by step, in order of evaluation
  for (const result of evals) {
    const step = stepOf(result.version);
    if (madeBy.has(result.version) && versionOf(step) !== result.version) continue; // undone
    problems.delete(step);
    problems.set(step, result.problems);
  }
  return { versionOf, stepOf, problems };
}

function noSuchVersion(
  run: string,
  version: number,
  kept: readonly number[],
  saved: readonly number[],
): string {
  const there = [...new Set([...kept, ...saved])].sort((a, b) => a - b);
  return (
    `version ${version} of run ${run} was deleted or never existed; ` +
    `there are ${there.length === 0 ? 'none' : there.join(', ')}. --version best and latest always ` +
    'exist; a run that is started with --keep-every-steps N also keeps every Nth step'
  );
}

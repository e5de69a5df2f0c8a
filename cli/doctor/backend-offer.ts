import { errorText, UserError } from '../../shared/base/errors.js';
import { losses, type LossName } from '../../shared/rl/losses.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import {
  callsText,
  probeAdapters,
  type FirstAdapter,
  type Known,
} from '../../shared/tinker/capability-probe.js';
import type { LoraModelOptions, TinkerClient } from '../../shared/tinker/client.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import { finding, ok, type Finding } from './finding.js';

/** What a backend offers that needs no adapter to be found out. */
export async function offerFindings(client: TinkerClient, model: string): Promise<Finding[]> {
  return [
    await tried('calls', async (check) => ok(check, callsText(await client.probeCalls()))),
    await tried('prompt-logprobs', async (check) => {
      const { known, reason } = await client.probePromptLogprobs(model);
      const absent =
        `${known === 'no' ? 'not given' : 'unknown'} (${reason}): actors that sample here draw the tokens of a ` +
        'canary instead, which a model without training does not pass';
      return ok(check, known === 'yes' ? 'given' : absent);
    }),
  ];
}

/** What a backend offers for an adapter: losses, a way to download it, a second one. */
export async function adapterFindings(
  client: TinkerClient,
  run: TrainingRun,
  { model, log }: { model: LoraModelOptions; log: Logger },
): Promise<Finding[]> {
  return [
    await tried('losses', (check) => lossFinding(check, run)),
    await tried('adapters', async (check) => {
      const first = await firstAdapter(client, run, log);
      return adapterFinding(check, first, client.samples(model.baseModel));
    }),
    await tried('adapters-at-once', (check) => secondAdapterFinding(check, client, model, log)),
  ];
}

/** A trial that fails is a finding, and the next ones continue. */
async function tried(check: string, trial: (check: string) => Promise<Finding>): Promise<Finding> {
  try {
    return await trial(check);
  } catch (caught) {
    return finding(check, 'error', errorText(caught), 'asItSays');
  }
}

async function lossFinding(check: string, run: TrainingRun): Promise<Finding> {
  const names = Object.keys(losses) as LossName[];
  try {
    const carried = await run.probeLosses(names);
    const said = names.map((name) => {
      const carrier = carried[name];
      return carrier === undefined ? name : `${name} by ${carrier}`;
    });
    return ok(check, said.join(', '));
  } catch (caught) {
    if (!(caught instanceof UserError)) throw caught;
    return finding(check, 'error', errorText(caught), 'noLoss');
  }
}

/** Saves the adapter as the learner does, and deletes it. */
async function firstAdapter(
  client: TinkerClient,
  run: TrainingRun,
  log: Logger,
): Promise<FirstAdapter> {
  const saved: string[] = [];
  const keep = (path: string) => {
    saved.push(path);
    return path;
  };
  try {
    const path = keep(await run.saveWeightsForSampler('offbeat-doctor'));
    const first = await probeAdapters(
      () => client.downloadAdapter(path),
      async () => keep(await run.saveWeightsExternal('offbeat-doctor-files')),
    );
    if (first.kind === 'external weights') await client.downloadExternal(first.path);
    return first;
  } finally {
    for (const path of saved) {
      await client.deleteCheckpoint(path).catch((caught: unknown) => {
        log.warn({ path, reason: errorText(caught) }, 'a trial checkpoint could not be deleted');
      });
    }
  }
}

/** @param samples whether the server itself samples. */
export function adapterFinding(check: string, first: FirstAdapter, samples: Known): Finding {
  if (first.kind !== 'none') return ok(check, `can be downloaded (${first.kind})`);
  const found = `cannot be downloaded: ${first.reasons.join('; ')}`;
  return samples === 'no'
    ? finding(check, 'error', found, 'neitherWay')
    : finding(check, 'warning', found, 'noAdapters');
}

/** Beside the adapter of the trial; no server says how many it holds. */
async function secondAdapterFinding(
  check: string,
  client: TinkerClient,
  model: LoraModelOptions,
  log: Logger,
): Promise<Finding> {
  try {
    await release(await client.createLoraModel(model), log);
    return ok(check, 'a second one can be created beside the first');
  } catch (caught) {
    return finding(check, 'warning', `one: ${errorText(caught)}`, 'oneAdapter');
  }
}

/** Gives a trial adapter back. */
export async function release(run: TrainingRun, log: Logger): Promise<void> {
  await run.unload().catch((caught: unknown) => {
    log.warn({ reason: errorText(caught) }, 'the trial adapter could not be unloaded');
  });
}

import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { errorText, UserError } from '../../shared/base/errors.js';
import { isFolder } from '../../shared/base/make-folder.js';
import { readJson } from '../../shared/base/read-json.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { digestFor } from '../../shared/run/run-data.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
import { Checkpoint } from '../../shared/wire/ledger.js';
import { runFolderAt, runsIn, unknownRun, type RunFolder } from '../run-folder.js';
import { readLaunch } from './resume.js';
import { usualAlpha } from '../../shared/model/lora.js';

/** The saved weights that a new run starts from. */
export interface StartingPoint {
  readonly path: string; // tinker://…, as the new run's backend knows them
  readonly run: string; // RUN@STEP
  readonly config: RunConfig; // of that run
  /** The state's folder, to copy for a backend of the new run's own. */
  readonly folder: string | undefined;
}

/** What a run must have in common with the one that it starts from. */
interface NewRun {
  readonly runsDir: string;
  readonly digests: Pick<ModelDirectory, 'digest' | 'digestWithoutTemplate'>; // of the model in `modelDir`
  readonly modelDir: string; // for errors
  readonly loraRank: number;
  readonly loraAlpha: number | undefined; // of the local backend; undefined: twice the rank
  readonly backendUrl: string | undefined; // none: a backend of its own
}

/**
 * Finds the saved weights that `--from RUN` or `--from RUN@STEP` names.
 *
 * @throws {UserError} if there are none, or they do not fit the new run.
 */
export async function findStart(from: string, wanted: NewRun): Promise<StartingPoint> {
  const [name = '', stepText] = from.split('@');
  const runs = await runsIn(wanted.runsDir);
  if (!runs.includes(name)) {
    throw new UserError(`--from ${from}: ${unknownRun(name, wanted.runsDir, runs)}`);
  }
  const folder = runFolderAt(wanted.runsDir, name);
  const { launcher } = await readLaunch(folder);
  const { config, checkpoint } = await readState(from, folder);
  const states = [
    ...(checkpoint.states ?? []),
    { step: checkpoint.step, path: checkpoint.statePath },
  ];
  const step = stepText === undefined ? checkpoint.step : Number(stepText);
  const state = states.find((each) => each.step === step);
  if (state === undefined || step === 0) {
    const kept = [...new Set(states.map((each) => each.step))].filter((each) => each > 0);
    throw new UserError(
      `--from ${from}: run ${name} keeps ${kept.length === 0 ? 'no trained state' : `the states of steps ${kept.join(', ')}`}; ` +
        'a run that is started with --keep-every-steps N keeps every Nth',
    );
  }
  const digest = digestFor(config.model.digest, wanted.digests);
  const complaints = [
    digest !== config.model.digest &&
      `it trained ${config.model.name} with the digest ${config.model.digest}, and ${wanted.modelDir} has ${digest}: name its model with --model-dir, with the same files, also the chat template`,
    config.lora.rank !== wanted.loraRank &&
      `its adapter has rank ${config.lora.rank}, not ${wanted.loraRank}: add --lora-rank ${config.lora.rank}`,
    // Two addresses may be the same server; another server does not have the weights and refuses them.
    (launcher.backendUrl === undefined) !== (wanted.backendUrl === undefined) &&
      placeComplaint(launcher.backendUrl),
  ];
  const isOwn = launcher.backendUrl === undefined && wanted.backendUrl === undefined;
  const stateFolder = isOwn ? folderOf(folder, state.path) : undefined;
  if (stateFolder !== undefined) {
    const { lora_alpha: alpha } = await readMetadata(from, stateFolder);
    const ours = wanted.loraAlpha ?? usualAlpha(wanted.loraRank);
    if (alpha !== ours && config.lora.rank === wanted.loraRank) {
      complaints.push(`its adapter has alpha ${alpha}, not ${ours}: add --lora-alpha ${alpha}`);
    }
  }
  const problems = complaints.filter((complaint) => complaint !== false);
  if (problems.length > 0) {
    const list = problems.map((problem) => `  - ${problem}`).join('\n');
    throw new UserError(`--from ${from}: the weights of run ${name} do not fit this run:\n${list}`);
  }
  const path =
    stateFolder === undefined
      ? state.path
      : `tinker://from-${name}/weights/step-${String(step).padStart(6, '0')}`;
  return { path, run: `${name}@${step}`, config, folder: stateFolder };
}

/**
 * Copies the adapter of a state into the checkpoints of a new run, whose backend finds it under the starting point's
 * path; the optimizer stays behind.
 */
export async function copyStart(
  { path, run, folder }: StartingPoint,
  { checkpoints }: Pick<RunFolder, 'checkpoints'>,
): Promise<void> {
  if (folder === undefined) return;
  const { runId, kind, name } = parseTinkerPath(path);
  const to = join(checkpoints, runId, kind, name);
  try {
    await rm(to, { recursive: true, force: true });
    await mkdir(dirname(to), { recursive: true });
    await cp(join(folder, 'adapter'), join(to, 'adapter'), { recursive: true });
    const metadata = JSON.parse(await readFile(join(folder, metadataFile), 'utf8')) as object;
    const kept = { expires_at: null, unnamed: undefined };
    const about = { ...metadata, training_run_id: runId, kind, name, ...kept };
    await writeFile(join(to, metadataFile), `${JSON.stringify(about, undefined, 2)}\n`);
  } catch (cause) {
    throw new UserError(`the weights of ${run} cannot be copied (${errorText(cause)})`, { cause });
  }
}

/** The folder of the adapter that a run has saved last, in PEFT's layout; undefined if there is none. */
export async function newestAdapter(folder: RunFolder): Promise<string | undefined> {
  const saved = Saved.safeParse(
    await readJson(join(folder.path, 'checkpoint.json')).catch(() => undefined),
  );
  if (!saved.success) return undefined;
  const adapter = join(folderOf(folder, saved.data.checkpoint.statePath), 'adapter');
  return (await isFolder(adapter)) ? adapter : undefined;
}

const metadataFile = 'metadata.json';
const Metadata = z.looseObject({ lora_alpha: z.number() });
const Saved = z.looseObject({ checkpoint: Checkpoint });

async function readState(from: string, { path }: RunFolder) {
  try {
    const config = RunConfig.parse(await readJson(join(path, 'config.json')));
    const { checkpoint } = Saved.parse(await readJson(join(path, 'checkpoint.json')));
    return { config, checkpoint };
  } catch (cause) {
    throw new UserError(
      `--from ${from}: ${path} has no checkpoint that can be read (${errorText(cause)}); has the run trained a step?`,
      { cause },
    );
  }
}

async function readMetadata(from: string, folder: string) {
  try {
    return Metadata.parse(await readJson(join(folder, metadataFile)));
  } catch (cause) {
    throw new UserError(`--from ${from}: ${folder} has no weights (${errorText(cause)})`, {
      cause,
    });
  }
}

function folderOf({ checkpoints }: RunFolder, path: string): string {
  const { runId, kind, name } = parseTinkerPath(path);
  return join(checkpoints, runId, kind, name);
}

function placeComplaint(theirs: string | undefined): string {
  return theirs === undefined
    ? 'its weights are in its own folder, where a server cannot read them: leave out --backend-url'
    : `its weights are at the server where it trained: add --backend-url ${theirs}`;
}

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errorText, UserError } from '../../shared/base/errors.js';
import type { ModelConfig } from '../../shared/model/model-config.js';
import { checkModelDirectory } from '../../shared/model/model-directory.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import {
  AccessRefused,
  BadAnswer,
  BadRequest,
  hasNoSuchCall,
  Unavailable,
} from '../../shared/tinker/errors.js';
import type { ServedModel } from '../../shared/tinker/handshake.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import { adapterFindings, offerFindings, release } from './backend-offer.js';
import { finding, ok, type Finding } from './finding.js';

export interface BackendQuestion {
  readonly backendUrl: string;
  readonly apiKey: string;
  readonly modelName: string | undefined; // by default the only one that it serves
  readonly modelDir: string;
  readonly loraRank: number;
  readonly trial: boolean; // whether an adapter may be made, to see whether the rank is accepted
  readonly log: Logger;
  readonly signal: AbortSignal;
}

const connectPatienceMs = 5_000;

/** Findings about a Tinker server and its model to be trained. */
export async function backendFindings(question: BackendQuestion): Promise<Finding[]> {
  const { backendUrl: baseUrl, apiKey, log, signal } = question;
  let client: TinkerClient;
  try {
    client = await TinkerClient.connect({ baseUrl, apiKey, log, signal, connectPatienceMs });
  } catch (caught) {
    signal.throwIfAborted();
    return [unusable(baseUrl, caught)];
  }
  await using _client = client;
  const served = client.models.map(({ name }) => name).join(', ') || 'models that it does not name';
  const findings = [ok('backend', `${baseUrl} answers, and serves ${served}`)];
  const model = chosen(client.models, question.modelName);
  if (typeof model === 'string') {
    return [...findings, finding('backend-model', 'error', model, 'modelNotServed')];
  }
  findings.push(...servedFindings(model));
  const context = contextFinding(model, await configOf(question.modelDir));
  if (context !== undefined) findings.push(context);
  findings.push(...(await offerFindings(client, model.name)));
  if (!question.trial) {
    return [...findings, finding('lora-rank', 'skipped', 'not tried', 'rankNotTried')];
  }
  return [...findings, ...(await tryRank(client, model.name, question))];
}

/** @param config of the model directory, if that could be read. */
export function contextFinding(
  model: Pick<ServedModel, 'maxContextLength'>,
  config: Pick<ModelConfig, 'maxPositions'> | undefined,
): Finding | undefined {
  const { maxContextLength: there } = model;
  if (there === undefined || config === undefined) return undefined;
  const found = `the backend takes ${there} tokens, the model ${config.maxPositions}`;
  return there < config.maxPositions
    ? finding('context', 'warning', found, 'shortContext')
    : ok('context', found);
}

/** Undefined if the model directory is unusable, which another check reports. */
async function configOf(modelDir: string): Promise<ModelConfig | undefined> {
  try {
    return (await checkModelDirectory(modelDir)).config;
  } catch {
    return undefined;
  }
}

function servedFindings({ name, capabilities }: ServedModel): Finding[] {
  const can = capabilities === undefined ? '' : ` for ${capabilities.join(' and ')}`;
  const found = `${name} is served${can}`;
  if (capabilities !== undefined && !capabilities.includes('training')) {
    return [finding('backend-model', 'error', found, 'cannotTrain')];
  }
  return [
    capabilities !== undefined && !capabilities.includes('sampling')
      ? finding('backend-model', 'warning', found, 'cannotSample')
      : ok('backend-model', found),
  ];
}

/**
 * Creates an adapter of the rank, compares the rank that the server reports, tries what training needs, and releases
 * the adapter.
 */
async function tryRank(
  client: TinkerClient,
  baseModel: string,
  { loraRank: rank, modelDir, log }: BackendQuestion,
): Promise<Finding[]> {
  const check = 'lora-rank';
  const model = { baseModel, rank };
  let run: TrainingRun;
  try {
    run = await client.createLoraModel(model);
  } catch (caught) {
    const found = `an adapter of rank ${rank} cannot be created: ${errorText(caught)}`;
    return [finding(check, 'error', found, 'rankRefused')];
  }
  try {
    const { tokenizerId, loraRank = rank } = await infoOf(run);
    const found = `an adapter of rank ${rank} can be created`;
    return [
      loraRank === rank
        ? ok(check, found)
        : finding(check, 'error', `${found}, but has rank ${loraRank}`, 'rankRefused'),
      await tokenizerFinding(tokenizerId, modelDir),
      ...(await adapterFindings(client, run, { model, log })),
    ];
  } finally {
    await release(run, log);
  }
}

/** A server may lack the call. */
async function infoOf(run: TrainingRun): Promise<Awaited<ReturnType<TrainingRun['info']>>> {
  try {
    return await run.info();
  } catch (caught) {
    if (caught instanceof BadRequest && hasNoSuchCall(caught.failure)) return {};
    throw caught;
  }
}

/** Tokenizers are equal if their files are: a server on this machine may name a directory. */
async function tokenizerFinding(
  tokenizerId: string | undefined,
  modelDir: string,
): Promise<Finding> {
  const check = 'backend-tokenizer';
  if (tokenizerId === undefined) {
    return finding(check, 'skipped', 'the backend does not name its tokenizer', 'tokenizerUnknown');
  }
  const [theirs, ours] = await Promise.all([tokenizerId, modelDir].map(tokenizerFile));
  if (theirs === undefined || ours === undefined) {
    const found = `the backend uses that of ${tokenizerId}, which is not on this machine to compare`;
    return finding(check, 'skipped', found, 'tokenizerUnknown');
  }
  return theirs.equals(ours)
    ? ok(check, `that of ${tokenizerId} is the same`)
    : finding(
        check,
        'error',
        `that of ${tokenizerId} differs from ${modelDir}`,
        'tokenizerDiffers',
      );
}

async function tokenizerFile(directory: string): Promise<Buffer | undefined> {
  try {
    return await readFile(join(directory, 'tokenizer.json'));
  } catch {
    return undefined;
  }
}

function chosen(models: readonly ServedModel[], name: string | undefined): ServedModel | string {
  const served = models.map((model) => model.name).join(', ');
  if (name === undefined) {
    return models.length === 1
      ? models[0]!
      : `it serves ${served || 'nothing'}; which one is meant?`;
  }
  if (models.length === 0) return { name }; // a server that lists none may still have it
  return models.find((model) => model.name === name) ?? `${name} is not among ${served}`;
}

function unusable(baseUrl: string, caught: unknown): Finding {
  const reason = caught instanceof UserError && caught.cause !== undefined ? caught.cause : caught;
  const detail = `${baseUrl} cannot be used: ${detailOf(reason)}`;
  if (reason instanceof AccessRefused) return finding('backend', 'error', detail, 'backendRefuses');
  const isSilent = reason instanceof Unavailable && reason.failure.status === undefined;
  return finding('backend', 'error', detail, isSilent ? 'backendUnreachable' : 'noTinkerServer');
}

function detailOf(reason: unknown): string {
  const isAnswer =
    reason instanceof AccessRefused || reason instanceof BadAnswer || reason instanceof Unavailable;
  return isAnswer ? reason.failure.detail : errorText(reason);
}

import { readFile, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { extract } from 'tar-stream';
import { z } from 'zod';
import { errorText, PermanentError } from '../base/errors.js';
import { ArchiveResponse, ExternalWeightsUrls } from './api.js';
import { AdapterOutOfReach, BadAnswer, BadRequest, hasNoSuchCall } from './errors.js';
import { NoAnswer, waitable, type TinkerHttp } from './http.js';
import { checkpointUrl, type TinkerPath } from './tinker-path.js';

/** A LoRA adapter in PEFT's layout; the update of a weight is (alpha / rank) · B · A. */
export interface DownloadedAdapter {
  readonly adapter: Uint8Array; // adapter_model.safetensors
  readonly rank: number;
  readonly alpha: number;
}

/**
 * Fetches a checkpoint's adapter. The server names its location: a tar at a URL, or, as TuFT does, a
 * directory on its own disk, which must then be mounted here too.
 *
 * @param checkpointDir where the server's checkpoint directory is mounted on this machine, if not
 *   under the same path.
 * @throws {AdapterOutOfReach} if the location is not reachable from here.
 */
export async function downloadAdapter(
  http: TinkerHttp,
  path: TinkerPath,
  checkpointDir: string | undefined,
  signal: AbortSignal,
): Promise<DownloadedAdapter> {
  const url = await locate(http, path, signal);
  const files =
    url.protocol === 'file:'
      ? await readDirectory(url, path, checkpointDir)
      : await readTar(
          url,
          await fetchBytes(http, 'archive download', url, maxArchiveBytes, signal),
        );
  return adapterOf(files, url);
}

/**
 * Finds out whether `downloadAdapter` can fetch an adapter, without fetching it.
 *
 * @throws {AdapterOutOfReach} if not.
 */
export async function locateAdapter(
  http: TinkerHttp,
  path: TinkerPath,
  checkpointDir: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  const url = await locate(http, path, signal);
  if (url.protocol !== 'file:') return;
  const folder = adapterFolder(url, path, checkpointDir);
  for (const file of Object.keys(maxBytes)) await sizeOf(join(folder, file));
}

/** A signed link to an adapter's weights, which works without a key for a while. */
export interface SignedLink {
  readonly url: string;
  readonly expiresAt: number; // ms since the epoch
}

/** What the server is assumed to mean if it names no time, as the SDK does. */
const usualLinkMs = 15 * 60_000;

/**
 * Fetches an adapter that `save_weights_external` has saved: the server names a signed URL for each of its files.
 *
 * @returns the adapter, and the link to its weights.
 * @throws {BadAnswer} if it names none for one of the two.
 */
export async function downloadExternal(
  http: TinkerHttp,
  path: TinkerPath,
  signal: AbortSignal,
): Promise<DownloadedAdapter & { readonly link: SignedLink }> {
  const { links, link } = await externalLinks(http, path, signal);
  const files: Files = {};
  for (const { file, limit, url } of links) {
    files[file] = await fetchBytes(http, `download of ${file}`, url, limit, signal);
  }
  return { ...adapterOf(files, links.find(({ file }) => file === configFile)!.url), link };
}

/** A new link to weights that `save_weights_external` has saved. @throws {BadAnswer} if the server names none. */
export async function signLink(
  http: TinkerHttp,
  path: TinkerPath,
  signal: AbortSignal,
): Promise<SignedLink> {
  return (await externalLinks(http, path, signal)).link;
}

async function externalLinks(http: TinkerHttp, path: TinkerPath, signal: AbortSignal) {
  const operation = 'external_weights_urls';
  const request = {
    operation,
    method: 'GET',
    path: `${checkpointUrl(path)}/${operation}`,
  } as const;
  const answer = await http.call(request, signal, { max500s: 1 });
  const { urls, expires } = answer.parse(ExternalWeightsUrls);
  const links = Object.entries(maxBytes).map(([file, limit]) => {
    const [, link = ''] = Object.entries(urls).find(([name]) => basename(name) === file) ?? [];
    if (!URL.canParse(link, answer.url)) throw answer.unexpected(`it has no URL of ${file}`);
    return { file, limit, url: new URL(link, answer.url) };
  });
  const until = Date.parse(expires ?? '');
  const expiresAt = until > Date.now() ? until : Date.now() + usualLinkMs; // or the clocks differ
  const weights = links.find(({ file }) => file === weightsFile)!.url;
  return { links, link: { url: weights.href, expiresAt } };
}

function adapterOf(files: Files, url: URL): DownloadedAdapter {
  const { r, lora_alpha } = parseConfig(files[configFile]!, url);
  return { adapter: files[weightsFile]!, rank: r, alpha: lora_alpha };
}

type Files = Partial<Record<string, Uint8Array>>;

const weightsFile = 'adapter_model.safetensors';
const configFile = 'adapter_config.json';
const maxBytes: Readonly<Record<string, number>> = {
  [weightsFile]: 2 ** 31,
  [configFile]: 2 ** 20,
};
const maxArchiveBytes = 2 ** 31 + 2 ** 24;

/** Refuses settings that change the meaning of the weights beyond (alpha / rank) · B · A. */
const AdapterConfig = z.object({
  r: z.int().positive(),
  lora_alpha: z.number().positive(),
  use_rslora: z.literal(false).nullish(),
  use_dora: z.literal(false).nullish(),
  fan_in_fan_out: z.literal(false).nullish(),
  rank_pattern: z.strictObject({}).nullish(),
  alpha_pattern: z.strictObject({}).nullish(),
});

async function locate(http: TinkerHttp, path: TinkerPath, signal: AbortSignal): Promise<URL> {
  const request = {
    operation: 'archive',
    method: 'GET',
    path: `${checkpointUrl(path)}/archive`,
  } as const;
  const isRedirect = ({ status }: { status: number }) => status >= 300 && status < 400;
  // 503: the archive is still being built.
  const options = { isDone: isRedirect, max500s: 1 };
  const answer = await http.call(request, signal, options).catch((caught: unknown) => {
    if (!(caught instanceof BadRequest) || !hasNoSuchCall(caught.failure)) throw caught;
    throw new AdapterOutOfReach(`the server at ${http.baseUrl} offers no archives`, {
      cause: caught,
    });
  });
  const text = isRedirect(answer)
    ? answer.headers.get('location')
    : answer.parse(ArchiveResponse).url;
  if (text === null || !URL.canParse(text, answer.url)) {
    throw answer.unexpected(`${JSON.stringify(text)} is no address of an archive`);
  }
  const url = new URL(text, answer.url);
  if (['http:', 'https:', 'file:'].includes(url.protocol)) return url;
  throw new AdapterOutOfReach(
    `the server at ${http.baseUrl} keeps its adapters at ${url.protocol}//…: expected http, https or file`,
  );
}

async function fetchBytes(
  http: TinkerHttp,
  operation: string,
  url: URL,
  limit: number,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const retryBudget = http.retryBudget();
  for (;;) {
    try {
      const answer = await http.download(operation, url, limit, signal);
      if (answer.isOk) return answer.bytes;
      if (!waitable(answer)) throw answer.error;
      await retryBudget.wait(answer.failure, answer.headers, signal);
    } catch (caught) {
      if (!(caught instanceof NoAnswer)) throw caught;
      await retryBudget.wait(caught.failure, undefined, signal, caught);
    }
  }
}

async function readTar(url: URL, bytes: Uint8Array): Promise<Files> {
  const complain = (detail: string, cause?: unknown) =>
    new BadAnswer(
      { operation: 'archive download', url: url.origin + url.pathname, detail },
      { cause },
    );
  const files: Files = {};
  const entries = extract();
  entries.end(bytes);
  try {
    for await (const entry of entries) {
      const { name, type, size } = entry.header;
      const limit = maxBytes[basename(name)];
      if (type !== 'file' || limit === undefined) {
        entry.resume();
        continue;
      }
      if (name.split('/').includes('..')) throw complain(`an entry is named ${name}`);
      if (size > limit) throw complain(`${name} has ${size} bytes, more than ${limit}`);
      if (files[basename(name)]) throw complain(`it holds ${basename(name)} twice`);
      const parts: Uint8Array[] = [];
      for await (const part of entry) parts.push(part as Uint8Array);
      files[basename(name)] = Buffer.concat(parts);
    }
  } catch (caught) {
    if (caught instanceof BadAnswer) throw caught;
    throw complain(`not a tar archive: ${errorText(caught)}`, caught);
  }
  for (const name of Object.keys(maxBytes)) {
    if (!files[name]) throw complain(`it holds no ${name}`);
  }
  return files;
}

async function readDirectory(
  url: URL,
  path: TinkerPath,
  checkpointDir: string | undefined,
): Promise<Files> {
  const folder = adapterFolder(url, path, checkpointDir);
  const files: Files = {};
  for (const [file, limit] of Object.entries(maxBytes)) {
    const place = join(folder, file);
    const size = await sizeOf(place);
    if (size > limit) throw new PermanentError(`${place} has ${size} bytes, more than ${limit}`);
    files[file] = await readFile(place).catch(onServersDisk);
  }
  return files;
}

function sizeOf(place: string): Promise<number> {
  return stat(place).then(({ size }) => size, onServersDisk);
}

function onServersDisk(caught: unknown): never {
  throw outOfReach(`the server keeps the adapter on its own disk: ${errorText(caught)}`, caught);
}

function adapterFolder(
  url: URL,
  { runId, name }: TinkerPath,
  checkpointDir: string | undefined,
): string {
  const named = checkpointDir === undefined ? localPath(url) : join(checkpointDir, runId, name);
  const folder = basename(named) === 'adapter' ? dirname(named) : named;
  if (basename(folder) !== name) {
    // A server may make us read only the adapter of the requested checkpoint.
    throw outOfReach(`the server names ${folder} for the checkpoint ${name}`);
  }
  return join(folder, 'adapter');
}

function localPath(url: URL): string {
  try {
    return fileURLToPath(url);
  } catch (cause) {
    throw outOfReach(`the server names ${url.href}: ${errorText(cause)}`, cause);
  }
}

function outOfReach(what: string, cause?: unknown): AdapterOutOfReach {
  const remedy =
    "Mount the server's folder of checkpoints here and name it with the learner's --checkpoint-dir, or let actors sample through the server: --sampler tinker";
  return new AdapterOutOfReach(`${what}. ${remedy}.`, { cause });
}

function parseConfig(bytes: Uint8Array, url: URL): z.output<typeof AdapterConfig> {
  const place = `${configFile} from ${url.origin === 'null' ? url.protocol : url.origin}${url.pathname}`;
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder().decode(bytes));
  } catch (cause) {
    throw new PermanentError(`${place} is not JSON: ${errorText(cause)}`, { cause });
  }
  const config = AdapterConfig.safeParse(json);
  if (config.success) return config.data;
  const issues = config.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
  throw new PermanentError(
    `${place} describes an adapter that is not plain LoRA: ${issues.join('; ')}`,
  );
}

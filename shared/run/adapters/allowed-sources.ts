import { realpath } from 'node:fs/promises';
import { isAbsolute, normalize, relative, sep } from 'node:path';
import { z } from 'zod';
import { errorText, UserError } from '../../base/errors.js';
import { listOf } from '../../service/config-fields.js';

/** An address under which everything may be fetched. */
interface AllowedAddress {
  readonly protocol: string; // https: or http:
  readonly host: string; // with its port; `*.` at its start stands for any subdomain
  readonly path: string; // `/`, or a prefix that ends at a slash or is the whole path
}

interface Sources {
  readonly addresses: readonly AllowedAddress[];
  readonly folders: readonly string[]; // absolute
}

/** The setting: addresses and absolute folders, separated by commas. */
export const adapterSources = listOf(z.string()).refine((text) => parse(text) !== undefined, {
  error:
    'expected addresses such as https://adapters.example or https://*.example/run/, and absolute folders, separated by commas',
});

/**
 * Where adapters may be fetched from besides the run's own object store. A manifest names an address, so without such a list
 * anyone who can write manifests could make an actor read any file and request any address that it can reach.
 */
export class AllowedSources {
  readonly #sources: Sources;

  /**
   * @param text a value of the setting; empty: no address and no folder.
   * @param setting its name, for errors.
   */
  constructor(
    private readonly text: string,
    private readonly setting: string,
  ) {
    this.#sources = parse(text) ?? { addresses: [], folders: [] };
  }

  /** @throws {UserError} if the address is not among those allowed. */
  requireAddress({ protocol, host, pathname, origin }: URL): void {
    const isAllowed = this.#sources.addresses.some(
      (allowed) =>
        allowed.protocol === protocol &&
        isHostIn(host, allowed.host) &&
        isPathIn(pathname, allowed.path),
    );
    if (!isAllowed) throw this.#refusal(origin, `${origin}, or ${origin}/PATH/ for a part of it`);
  }

  /**
   * Checks a file, with all symbolic links on its way.
   *
   * @returns its path without links.
   * @throws {UserError} if it is not in one of the folders.
   * @throws {Error} if it does not exist.
   */
  async requireFile(path: string): Promise<string> {
    const { folders } = this.#sources;
    // Before the file system is asked: not even the existence of other files is to be found out.
    if (!folders.some((folder) => isInside(normalize(path), folder))) throw this.#notInFolder(path);
    const real = await realpath(path).catch((cause: unknown) => {
      throw new Error(`${path} cannot be read: ${errorText(cause)}`, { cause });
    });
    for (const folder of folders) {
      const place = await realpath(folder).catch(() => undefined);
      if (place !== undefined && isInside(real, place)) return real;
    }
    throw this.#notInFolder(path);
  }

  #notInFolder(path: string): UserError {
    return this.#refusal(path, 'the folder of the adapters');
  }

  #refusal(place: string, remedy: string): UserError {
    const now = this.text === '' ? 'empty' : this.text;
    return new UserError(
      `an adapter is at ${place}, which is not among the sources that are allowed here: ${this.setting} is ${now}. ` +
        `If you trust that place, add ${remedy}`,
    );
  }
}

function parse(text: string): Sources | undefined {
  const addresses: AllowedAddress[] = [];
  const folders: string[] = [];
  if (text === '') return { addresses, folders };
  for (const entry of text.split(',').map((part) => part.trim())) {
    if (isAbsolute(entry)) {
      folders.push(normalize(entry));
      continue;
    }
    const address = addressOf(entry);
    if (address === undefined) return undefined;
    addresses.push(address);
  }
  return { addresses, folders };
}

function addressOf(entry: string): AllowedAddress | undefined {
  const [, scheme, wildcard = '', rest = ''] = /^(https?:\/\/)(\*\.)?([^*]+)$/.exec(entry) ?? [];
  if (scheme === undefined || !URL.canParse(scheme + rest)) return undefined;
  const { protocol, host, pathname, username, password, search, hash } = new URL(scheme + rest);
  if (username + password + search + hash !== '' || host === '') return undefined;
  if (wildcard !== '' && !/[^.]\.[^.]/.test(host)) return undefined; // `*.com` names no owner
  return { protocol, host: wildcard + host, path: pathname };
}

function isHostIn(host: string, allowed: string): boolean {
  return allowed.startsWith('*.') ? host.endsWith(allowed.slice(1)) : host === allowed;
}

function isPathIn(path: string, allowed: string): boolean {
  return path === allowed || path.startsWith(allowed.endsWith('/') ? allowed : `${allowed}/`);
}

function isInside(path: string, folder: string): boolean {
  const inner = relative(folder, path);
  return inner !== '' && inner !== '..' && !inner.startsWith(`..${sep}`) && !isAbsolute(inner);
}

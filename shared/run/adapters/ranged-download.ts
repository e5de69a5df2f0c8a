import { createHash, type Hash } from 'node:crypto';
import { addAbortListener } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { errorText, PermanentError, UserError } from '../../base/errors.js';

/** A file that is known before it is fetched. */
interface ExpectedFile {
  readonly url: URL;
  readonly bytes: number;
  readonly sha256: string; // in hexadecimal
}

export interface DownloadOptions {
  /** Called with every address, those of redirects too. @throws if it may not be requested. */
  readonly allow: (url: URL) => void;
  readonly stallMs?: number; // longest wait for an answer, or for more of it
  readonly limitMs?: number; // of the whole download
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<unknown>; // replaced in tests
}

/** The server no longer gives the file under this address, as it does when a signed link has expired. */
export class LinkRefused extends Error {
  override readonly name = 'LinkRefused';

  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

/** The download broke off; the bytes so far are kept. */
class BrokenOff extends Error {
  override readonly name = 'BrokenOff';
}

const usualStallMs = 30_000;
const usualLimitMs = 900_000;
const maxRedirects = 5;
const maxIdleAttempts = 6; // in a row, that brought not one byte
const firstPauseMs = 500;

/**
 * Downloads a file into one block of memory, with its SHA-256 computed on the way. A download that breaks off is
 * continued from there if the server can, as long as the file has not changed meanwhile, and begun again otherwise.
 *
 * No more bytes are read than expected, and no answer is waited for longer than the limits. Errors name only the origin, since the rest
 * of a signed link is a secret.
 *
 * @throws {PermanentError} if what the server has is not the expected file.
 * @throws {LinkRefused} on 401, 403, 404 or 410.
 * @throws {Error} if the server cannot be reached, or fails again and again.
 */
export async function downloadRanges(
  { url, bytes, sha256 }: ExpectedFile,
  options: DownloadOptions,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const { limitMs = usualLimitMs, sleep = pause } = options;
  const part = new Part(url.origin, bytes);
  const outOfTime = new Error(
    `${url.origin} did not give the file of ${bytes} bytes within ${limitMs / 1_000} s`,
  );
  using limit = new Limit(limitMs, outOfTime, signal);
  for (let idle = 0; ;) {
    const before = part.received;
    signal.throwIfAborted();
    if (limit.isOver()) throw outOfTime;
    try {
      await part.receive(await request(url, part, options, limit.signal), limit.signal, options);
      const digest = part.digest();
      if (digest === sha256) return part.content;
      // Its parts may be of different files.
      if (!part.isPieced) throw part.wrong(`SHA-256 ${digest}, but ${sha256} is expected`);
      part.restart();
    } catch (caught) {
      signal.throwIfAborted();
      if (limit.isOver()) throw outOfTime;
      if (!(caught instanceof BrokenOff)) throw caught;
      idle = part.received > before ? 0 : idle + 1;
      if (idle === maxIdleAttempts) {
        throw new Error(
          `${url.origin} gave ${part.filled} of ${bytes} bytes, and then failed ${idle} times in a row: ${caught.message}`,
          { cause: caught },
        );
      }
      await sleep(firstPauseMs * 2 ** idle, limit.signal).catch(() => undefined);
    }
  }
}

/** What has arrived of a file. */
class Part {
  readonly content: Uint8Array;
  filled = 0;
  received = 0; // bytes, those of attempts that were begun again too
  isPieced = false; // from several answers
  #hash: Hash = createHash('sha256');
  #etag: string | undefined; // a strong one: only that identifies bytes

  constructor(
    private readonly origin: string,
    private readonly bytes: number,
  ) {
    this.content = new Uint8Array(bytes);
  }

  /** Asks for what is missing, and for all of it if the file has changed. */
  get headers(): Record<string, string> {
    // Uncompressed: a range of compressed bytes is not a range of the file.
    const plain = { 'accept-encoding': 'identity' };
    if (this.filled === 0) return plain;
    const range = { ...plain, range: `bytes=${this.filled}-` };
    return this.#etag === undefined ? range : { ...range, 'if-range': this.#etag };
  }

  restart(): void {
    this.filled = 0;
    this.isPieced = false;
    this.#hash = createHash('sha256');
    this.#etag = undefined;
  }

  /** Appends the body of an answer. @throws {BrokenOff} if it is not the rest of the file. */
  async receive(
    response: Response,
    signal: AbortSignal,
    { stallMs = usualStallMs }: DownloadOptions,
  ): Promise<void> {
    using stall = new Limit(stallMs, new Error(`no data for ${stallMs / 1_000} s`), signal);
    const body = response.body?.getReader() as ReadableStreamDefaultReader<Uint8Array> | undefined;
    using _cancel = addAbortListener(stall.signal, () => {
      void body?.cancel().catch(() => undefined);
    });
    try {
      this.#begin(response);
      for (;;) {
        const read = await body?.read();
        stall.signal.throwIfAborted();
        if (read === undefined || read.done) break;
        stall.refresh();
        this.#append(read.value);
      }
    } catch (caught) {
      void body?.cancel().catch(() => undefined);
      if (caught instanceof PermanentError || caught instanceof BrokenOff) throw caught;
      throw new BrokenOff(networkText(caught), { cause: caught });
    }
    if (this.filled === this.bytes) return;
    throw new BrokenOff(`the answer ended at byte ${this.filled} of ${this.bytes}`);
  }

  /** The digest of all bytes, once they are there. */
  digest(): string {
    return this.#hash.digest('hex');
  }

  wrong(what: string): PermanentError {
    return new PermanentError(`the file at ${this.origin} has ${what}`);
  }

  #begin({ status, headers }: Response): void {
    const etag = headers.get('etag') ?? '';
    const strong = etag.startsWith('"') ? etag : undefined;
    if (status === 200) {
      const length = headers.get('content-length');
      if (length !== null && Number(length) !== this.bytes) {
        throw this.wrong(`${length} bytes, but ${this.bytes} are expected`);
      }
      this.restart(); // the server has no ranges, or another file than before
      this.#etag = strong;
      return;
    }
    const range = headers.get('content-range') ?? '';
    const [, first, total] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(range) ?? [];
    const isRest = Number(first) === this.filled && this.filled > 0;
    const isSame = this.#etag === undefined || strong === undefined || strong === this.#etag;
    if (total !== undefined && total !== '*' && Number(total) !== this.bytes) {
      throw this.wrong(`${total} bytes, but ${this.bytes} are expected`);
    }
    if (!isRest || !isSame) {
      const found = range === '' ? 'an answer without a range' : range;
      const asked = this.filled;
      this.restart();
      throw new BrokenOff(`asked for the bytes from ${asked} on, it sent ${found} of another file`);
    }
    this.isPieced = true;
  }

  #append(chunk: Uint8Array): void {
    if (this.filled + chunk.byteLength > this.bytes) {
      throw this.wrong(`more than the ${this.bytes} bytes that are expected`);
    }
    this.content.set(chunk, this.filled);
    this.#hash.update(chunk);
    this.filled += chunk.byteLength;
    this.received += chunk.byteLength;
  }
}

/** Requests what is missing, by way of redirects. @returns an answer with 200 or 206. */
async function request(
  start: URL,
  part: Part,
  { allow, stallMs = usualStallMs }: DownloadOptions,
  signal: AbortSignal,
): Promise<Response> {
  let url = start;
  for (let hops = 0; hops <= maxRedirects; hops++) {
    allow(url);
    using limit = new Limit(stallMs, new Error(`no answer within ${stallMs / 1_000} s`), signal);
    const response = await fetch(url.href, {
      headers: part.headers,
      redirect: 'manual', // each address is checked
      signal: limit.signal,
    }).catch((cause: unknown) => {
      if (cause instanceof UserError) throw cause;
      throw new BrokenOff(networkText(limit.signal.aborted ? limit.signal.reason : cause), {
        cause,
      });
    });
    const { status, headers } = response;
    if (status === 200 || status === 206) return response;
    void response.body?.cancel().catch(() => undefined);
    const location = headers.get('location');
    if ([301, 302, 303, 307, 308].includes(status) && location !== null) {
      if (!URL.canParse(location, url.href))
        throw new Error(`${url.origin} redirects to no address`);
      url = new URL(location, url);
      continue;
    }
    if ([401, 403, 404, 410].includes(status)) {
      throw new LinkRefused(`${url.origin} answered ${status}`, status);
    }
    if (status === 416) part.restart(); // the file is shorter than what we have of it
    const isTransient = status === 408 || status === 416 || status === 429 || status >= 500;
    if (isTransient) throw new BrokenOff(`${url.origin} answered ${status}`);
    throw new Error(`${url.origin} answered ${status}`);
  }
  throw new Error(`${start.origin} redirects more than ${maxRedirects} times`);
}

/** Aborts its signal after a time without `refresh`, or with a caller's signal. */
class Limit implements Disposable {
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly #link: Disposable;

  constructor(ms: number, reason: Error, signal: AbortSignal) {
    const abort = (why: unknown) => {
      this.#controller.abort(why);
    };
    this.#timer = setTimeout(abort, ms, reason);
    this.#link = addAbortListener(signal, () => {
      abort(signal.reason);
    });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  isOver(): boolean {
    return this.signal.aborted;
  }

  refresh(): void {
    this.#timer.refresh();
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#link[Symbol.dispose]();
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return delay(ms, undefined, { signal });
}

function networkText(caught: unknown): string {
  const cause = caught instanceof Error ? caught.cause : undefined;
  return cause instanceof Error ? `${errorText(caught)} (${cause.message})` : errorText(caught);
}

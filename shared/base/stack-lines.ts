import { existsSync, readFileSync } from 'node:fs';
import { SourceMap, type SourceMapPayload } from 'node:module';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * Makes the stacks of this thread's errors name the lines of the TypeScript sources, by the maps beside the compiled
 * files. Node.js can do so itself (--enable-source-maps), but then reads every map at the start, which takes 0.3 s of
 * processor time for a test with 200 modules; here only those of a stack that is looked at are read.
 */
export function nameSourceLines(): void {
  const maps = new Map<string, SourceMap | undefined>();
  const mapOf = (path: string): SourceMap | undefined => {
    if (!maps.has(path)) maps.set(path, readMap(`${path}.map`));
    return maps.get(path);
  };
  // The types of Node.js lack the text of a frame.
  Error.prepareStackTrace = (error, frames: readonly { toString(): string }[]) => {
    // The NATS client takes this stack at each close and rarely shows it. To read the map of its lines takes 0.1 s.
    const isUnseen = error.message === 'close trace';
    const lines = frames.map(
      (frame) => `    at ${isUnseen ? frame.toString() : sourceLine(frame.toString(), mapOf)}`,
    );
    // As Node.js does: an error's own toString may add what its name has at this moment already.
    return [Error.prototype.toString.call(error), ...lines].join('\n');
  };
}

/** A line of a stack with the place in the source, if there is a map. */
function sourceLine(frame: string, mapOf: (path: string) => SourceMap | undefined): string {
  return frame.replace(/(file:\/\/[^)]*):(\d+):(\d+)/, (place, url: string, line, column) => {
    const path = fileURLToPath(url);
    const found = mapOf(path)?.findEntry(Number(line) - 1, Number(column) - 1);
    if (found === undefined || !('originalSource' in found)) return place;
    const source = resolve(dirname(path), found.originalSource);
    return `${source}:${found.originalLine + 1}:${found.originalColumn + 1}`;
  });
}

function readMap(path: string): SourceMap | undefined {
  if (!existsSync(path)) return undefined;
  return new SourceMap(JSON.parse(readFileSync(path, 'utf8')) as SourceMapPayload);
}

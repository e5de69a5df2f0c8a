import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** A program that answers `--version` as nats-server does. */
export const serverText = (version: string) => `#!/bin/sh\necho "nats-server: v${version}"\n`;

/** Writes an executable file, with the folders above it. */
export async function executable(path: string, text: string): Promise<string> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, text, { mode: 0o755 });
  return path;
}

/** A program called nats-server in `folder`. */
export function fakeServer(folder: string, version: string): Promise<string> {
  return executable(join(folder, 'nats-server'), serverText(version));
}

import { sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const path = fileURLToPath(import.meta.url);

/** The folder of package.json: the one with dist/, where this code is by itself or in the bundle. */
export const packageRoot = path.slice(0, path.lastIndexOf(`${sep}dist${sep}`) + 1);

/** The compiled program, bundled. */
export const offbeatProgram = `${packageRoot}dist/bundle/cli.js`;

/** Downloads shared by every run of this checkout. */
export const cacheFolder = `${packageRoot}.cache`;

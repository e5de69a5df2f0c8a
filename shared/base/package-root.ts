import { fileURLToPath } from 'node:url';

/** The folder of package.json, relative to this file's location in dist/. */
export const packageRoot = fileURLToPath(new URL('../../../', import.meta.url));

/** Downloads shared by every run of this checkout. */
export const cacheFolder = `${packageRoot}.cache`;

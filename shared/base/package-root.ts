import { fileURLToPath } from 'node:url';

/** The folder of package.json, seen from this file's place in dist/. */
export const packageRoot = fileURLToPath(new URL('../../../', import.meta.url));

/** Downloads that every run of this checkout shares. */
export const cacheFolder = `${packageRoot}.cache`;

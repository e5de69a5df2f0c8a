import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** What cli/bundle.mjs makes. */
export const bundleFolder = 'dist/bundle';
/** What `offbeat` and all services run; for the sources it is `offbeatProgram`. */
export const program = `${bundleFolder}/cli.js`;

/**
 * Why the installed dependencies are not those of package-lock.json, or undefined when they are.
 * Compares the record that npm writes when it has finished, not times: those change with every checkout.
 *
 * @param {string} root the folder of package.json.
 * @returns {string | undefined}
 */
export function whyInstallIsStale(root) {
  const wanted = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages;
  let installed;
  try {
    const record = join(root, 'node_modules/.package-lock.json');
    installed = JSON.parse(readFileSync(record, 'utf8')).packages;
  } catch {
    return 'node_modules is missing or incomplete';
  }
  for (const [path, { version, integrity, optional }] of Object.entries(wanted)) {
    if (path === '') continue; // the project itself
    const found = installed[path];
    if (found === undefined) {
      if (optional) continue; // for another platform
      return `${path} is missing`;
    }
    if (found.version !== version || found.integrity !== integrity) return `${path} has changed`;
  }
  return undefined;
}

/**
 * A digest of all inputs of the compiler and the bundler: the sources' paths and contents, their settings, and the
 * dependencies' versions.
 *
 * @returns {string} SHA-256 in hex.
 */
export function sourceFingerprint(root) {
  const hash = createHash('sha256');
  const settings = [
    'package.json',
    'package-lock.json',
    'cli/bundle.mjs',
    ...compilerSettings(root),
  ];
  for (const path of [...settings, ...sourceFiles(root)]) {
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(root, path)))
      .update('\0');
  }
  return hash.digest('hex');
}

/** The compiler settings: for Node.js, and for the browser. */
export function compilerSettings(root) {
  const browser = 'cli/dashboard/browser/tsconfig.json';
  return ['tsconfig.json', ...(existsSync(join(root, browser)) ? [browser] : [])];
}

/** Why dist/ is not what `fingerprint` describes, or undefined when it is. */
export function whyBuildIsStale(root, fingerprint, fingerprintFile) {
  const recorded = join(root, fingerprintFile);
  if (!existsSync(recorded)) return 'never done here';
  if (readFileSync(recorded, 'utf8') !== fingerprint) return 'the sources have changed';
  const lost = [...sourceFiles(root).map((path) => `dist/${outputOf(path)}`), program].find(
    (path) => !existsSync(join(root, path)),
  );
  return lost === undefined ? undefined : `${lost} is missing`;
}

/** Compiled files whose source is gone: otherwise a deleted test would still run. */
export function orphanedOutputs(root) {
  const expected = new Set(sourceFiles(root).map(outputOf));
  const dist = join(root, 'dist');
  return walk(dist)
    .filter((path) => /\.js(\.map)?$/.test(path) && !path.startsWith(join(root, bundleFolder)))
    .filter((path) => !expected.has(relative(dist, path).replace(/\.map$/, '')));
}

/** The project's TypeScript files, relative to `root`, sorted: those that tsconfig.json includes. */
export function sourceFiles(root) {
  const { include } = JSON.parse(readFileSync(join(root, 'tsconfig.json'), 'utf8'));
  return include
    .flatMap((folder) => walk(join(root, folder)))
    .filter((path) => /(?<!\.d)\.ts$/.test(path))
    .map((path) => relative(root, path))
    .sort();
}

const outputOf = (source) => source.replace(/\.ts$/, '.js');

function walk(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

/**
 * Joins the compiled program and its packages into few files, in dist/bundle: a service consists of some 400
 * modules, and loading them one by one takes up to a third of the processor time of its start.
 *
 *   node cli/bundle.mjs [CHECKOUT]
 */
import { readdirSync, rmSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { bundleFolder } from './staleness.mjs';

const root = process.argv[2] ?? dirname(dirname(fileURLToPath(import.meta.url)));

/** The program, and the scripts of its threads and processes: it starts them as files beside its own. */
const entries = [
  'cli/cli.js',
  'actor/sampler/decoder-worker.js',
  'local-backend/gradient-worker.js',
  'local-backend/sampling-worker.js',
  'local-backend/training-worker.js',
  'shared/tasks/data/parquet-process.js',
];

/** A run in progress still imports files of the bundle that it was started with. */
const keptMs = 24 * 3_600_000;

const outdir = join(root, bundleFolder);
const startedAt = Date.now();
const { metafile } = await build({
  metafile: true,
  absWorkingDir: root,
  entryPoints: entries.map((path) => join('dist', path)),
  entryNames: '[name]',
  outdir,
  bundle: true,
  splitting: true, // a command loads only its own part
  platform: 'node',
  target: 'node20.11',
  format: 'esm',
  // These have native code, look for files beside their own, or (the last ones) would be refused below. prom-client always
  // loads @opentelemetry/api, whose many files take longer one by one.
  external: [
    'onnxruntime-node',
    '@huggingface/transformers',
    '@opentelemetry/resources',
    '@opentelemetry/sdk-trace-base',
    '@opentelemetry/exporter-trace-otlp-http',
  ],
  // Node.js would read all maps at the start; shared/base/stack-lines.ts reads them when an error is shown.
  sourcemap: 'external',
  sourcesContent: false,
  banner: {
    // Packages that are CommonJS modules call `require`.
    js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
  },
  logLevel: 'warning',
});
// A CommonJS package that is split off for an import() has none of its names there, only a default export.
const nameless = Object.values(metafile.outputs).find(
  ({ entryPoint, exports }) => entryPoint?.includes('node_modules') && exports.join() === 'default',
);
if (nameless !== undefined) {
  process.stderr.write(
    `cli/bundle.mjs: import() of ${nameless.entryPoint} finds no names in the bundle, since it is a CommonJS module; ` +
      'import it at the start of a file, or add its package to external\n',
  );
  process.exit(1);
}
for (const name of readdirSync(outdir)) {
  const path = join(outdir, name);
  if (statSync(path).mtimeMs < startedAt - keptMs) rmSync(path, { force: true });
}

import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import {
  chmod,
  copyFile,
  cp,
  mkdir,
  readdir,
  readFile,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { join, relative } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { lastLine, runCommand } from '../../cli/run-command.js';
import { UserError } from '../../shared/base/errors.js';
import { packageRoot } from '../../shared/base/package-root.js';

/** Below 64 MB in either reading of the unit. */
const pieceBytes = 60_000_000;

/** Packages that a Python with torch and transformers has. */
const alreadyThere = new Set([
  ...['torch', 'transformers', 'tokenizers', 'safetensors', 'huggingface_hub', 'hf-xet', 'regex'],
  ...[
    'numpy',
    'pyyaml',
    'filelock',
    'fsspec',
    'jinja2',
    'markupsafe',
    'mpmath',
    'networkx',
    'sympy',
  ],
  'pyqwest', // the transport of the SDK's client, which the server does not use
]);

/** ONNX Runtime for browsers and other systems, and what only compilers and readers need. The tokenizer loads that for this system. */
const leftOut = [
  new RegExp(
    `^node_modules/onnxruntime-node/bin/napi-v\\d+/(?!${process.platform}(?:/?$|/${process.arch}(?:/|$)))[^/]`,
  ),
  /^node_modules\/onnxruntime-web\/.*\.wasm$/,
  /\.(?:map|md|d\.[mc]?ts)$/,
];

/** The flags of `npm run test:gpu`. */
export const PackConfig = z.object({
  pack: z
    .string()
    .min(1)
    .optional()
    .describe(
      'folder for the pieces, to be copied to a machine without network; without it, they run here.',
    ),
  python: z
    .string()
    .regex(/^3\.\d+$/, 'expected a version such as 3.12')
    .default('3.12')
    .describe('version of the Python that has torch and transformers there.'),
});

export interface PackOptions {
  readonly folder: string; // where the pieces go; created
  readonly python: string; // version of the Python that will run there, such as 3.12
  readonly natsServer: string; // path of the binary
  readonly report: (line: string) => void;
}

interface Listed {
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
}

/** What the folder holds, and what the pieces hold together. */
export interface Manifest {
  readonly v: 1;
  readonly python: string;
  readonly node: string;
  readonly commit?: string; // of Offbeat, with `-dirty` if files were changed; absent without git
  readonly pieces: readonly Listed[]; // of one tar.xz, in order
  readonly contents: readonly { readonly name: string; readonly bytes: number }[]; // unpacked
}

/**
 * Packs all that the GPU test needs beside a Python with torch and transformers into pieces of less than 64 MB:
 * this Node.js, nats-server, the compiled program with its packages, TuFT and the wheels that it needs. They run on the
 * system and processor of this machine.
 *
 * @throws {UserError} if a wheel cannot be downloaded, or `tar` or `xz` is missing.
 */
export async function pack({ folder, python, natsServer, report }: PackOptions): Promise<Manifest> {
  const bundle = join(folder, 'packing');
  await rm(bundle, { recursive: true, force: true });
  await mkdir(join(bundle, 'bin'), { recursive: true });

  await copyFile(process.execPath, join(bundle, 'bin/node'));
  await copyFile(natsServer, join(bundle, 'bin/nats-server'));
  await chmod(join(bundle, 'bin/nats-server'), 0o755);
  await copyFile(join(packageRoot, 'tools/gpu-test/gpu_test.py'), join(bundle, 'gpu_test.py'));
  await copyProgram(join(bundle, 'offbeat'));
  report(`downloading wheels for Python ${python}`);
  await downloadWheels(join(bundle, 'wheels'), python);

  report('compressing');
  const archive = join(folder, 'bundle.tar.xz');
  // One thread: two need not give the same bytes, and a helper beside other work should not take every core.
  await run('tar', ['--sort=name', '-C', bundle, '-cf', join(folder, 'bundle.tar'), '.']);
  await run('xz', ['--force', '-1', join(folder, 'bundle.tar')]);
  const manifest: Manifest = {
    v: 1,
    python,
    node: process.version,
    ...(await commitOfCheckout()),
    pieces: await split(archive, folder),
    contents: await sizesOf(bundle),
  };
  await rm(archive);
  await rm(bundle, { recursive: true });
  await writeFile(join(folder, 'manifest.json'), `${JSON.stringify(manifest, undefined, 2)}\n`);
  for (const file of ['run', 'unpack.py']) {
    await copyFile(join(packageRoot, 'tools/gpu-test', file), join(folder, file));
  }
  return manifest;
}

async function commitOfCheckout(): Promise<Pick<Manifest, 'commit'>> {
  const args = ['describe', '--always', '--dirty', '--abbrev=40', '--exclude=*'];
  const { code, output } = await runCommand('git', args, { cwd: packageRoot, timeoutMs: 20_000 });
  return code === 0 ? { commit: output } : {};
}

/** The compiled program, its production packages, the shipped model and TuFT's launcher. */
async function copyProgram(target: string): Promise<void> {
  const listed = await run('npm', ['ls', '--omit=dev', '--all', '--parseable']);
  const packages = listed
    .split('\n')
    .slice(1)
    .map((path) => relative(packageRoot, path));
  const parts = ['package.json', 'dist', 'shared/model/base', 'tools/tuft-cpu', ...packages];
  for (const part of parts) {
    await cp(join(packageRoot, part), join(target, part), {
      recursive: true,
      filter: (source) => isNeeded(relative(packageRoot, source), part),
    });
  }
}

function isNeeded(path: string, part: string): boolean {
  if (path.slice(part.length).startsWith('/node_modules')) return false; // listed by itself
  return !leftOut.some((pattern) => pattern.test(path));
}

/** The wheels of TuFT's pinned requirements that are not there already. */
async function downloadWheels(target: string, python: string): Promise<void> {
  const text = await readFile(join(packageRoot, 'tools/tuft-cpu/requirements.txt'), 'utf8');
  const wanted = text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .filter((line) => !alreadyThere.has(line.split('==')[0]!));
  // pip matches the number exactly: each names another base system on which the wheel runs.
  const systems = [
    'manylinux_2_28',
    'manylinux_2_27',
    'manylinux_2_17',
    'manylinux2014',
    'manylinux1',
  ];
  const platforms = systems.map((system) => `--platform=${system}_${machine()}`);
  await run('python3', [
    ...['-m', 'pip', 'download', '--quiet', '--no-deps', '--only-binary=:all:'],
    ...['--disable-pip-version-check', `--python-version=${python}`, '--implementation=cp'],
    ...[...platforms, `--dest=${target}`, ...wanted],
  ]);
}

function machine(): string {
  const { arch } = process;
  const known = { x64: 'x86_64', arm64: 'aarch64' }[arch as string];
  if (process.platform !== 'linux' || known === undefined) {
    throw new UserError(
      `the bundle is for Linux on the processor that it is packed on; this is ${process.platform} on ${arch}`,
    );
  }
  return known;
}

/** Cuts a file into pieces beside it, `piece-0.bin` and so on, each below 64 MB. */
export async function split(file: string, folder: string, most = pieceBytes): Promise<Listed[]> {
  const { size } = await stat(file);
  const pieces: Listed[] = [];
  for (let start = 0; start < size; start += most) {
    const name = `piece-${pieces.length}.bin`;
    const end = Math.min(size, start + most) - 1;
    const hash = createHash('sha256');
    const source = createReadStream(file, { start, end });
    source.on('data', (chunk) => hash.update(chunk));
    await pipeline(source, createWriteStream(join(folder, name)));
    pieces.push({ name, bytes: end - start + 1, sha256: hash.digest('hex') });
  }
  return pieces;
}

/** The parts of the bundle, the wheels one by one. */
async function sizesOf(bundle: string): Promise<Manifest['contents']> {
  const names = [
    ...['bin/node', 'bin/nats-server', 'gpu_test.py', 'offbeat/dist', 'offbeat/node_modules'],
    ...['offbeat/shared/model/base', 'offbeat/tools/tuft-cpu'],
    ...(await readdir(join(bundle, 'wheels'))).sort().map((wheel) => `wheels/${wheel}`),
  ];
  return Promise.all(
    names.map(async (name) => ({ name, bytes: await bytesOf(join(bundle, name)) })),
  );
}

async function bytesOf(path: string): Promise<number> {
  const found = await stat(path);
  if (!found.isDirectory()) return found.size;
  const inside = await Promise.all((await readdir(path)).map((name) => bytesOf(join(path, name))));
  return inside.reduce((sum, bytes) => sum + bytes, 0);
}

async function run(command: string, args: readonly string[]): Promise<string> {
  const options = { cwd: packageRoot, timeoutMs: 1_800_000 };
  const { code, output } = await runCommand(command, args, options);
  if (code !== 0) throw new UserError(`${command} ${args[0]}: ${lastLine(output)}`);
  return output;
}

import { cp, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { scriptsFolder } from './scripts.js';

/** A checkout of a small project with our scripts, and with a compiler and a bundler that only copy. */
export class Project implements AsyncDisposable {
  private constructor(readonly root: string) {}

  static async create(): Promise<Project> {
    const project = new Project(await mkdtemp(join(tmpdir(), 'offbeat-project-')));
    const from = fileURLToPath(scriptsFolder);
    for (const name of await readdir(from)) {
      if (name.endsWith('.mjs')) await cp(join(from, name), project.path(`cli/${name}`));
    }
    const packages = {
      '': { name: 'project' },
      'node_modules/typescript': { version: '1.0.0', integrity: 'sha512-a' },
      'node_modules/for-another-system': {
        version: '1.0.0',
        integrity: 'sha512-b',
        optional: true,
      },
    };
    const { 'node_modules/typescript': typescript } = packages;
    await project.write('package.json', { name: 'project' });
    await project.write('package-lock.json', { packages });
    await project.write('node_modules/.package-lock.json', {
      packages: { 'node_modules/typescript': typescript },
    });
    await project.write('tsconfig.json', { include: ['cli', 'test'] });
    await project.write('node_modules/typescript/bin/tsc', compiler);
    await project.write('node_modules/esbuild/package.json', { type: 'module', main: 'main.js' });
    await project.write('node_modules/esbuild/main.js', bundler);
    return project;
  }

  path(name: string): string {
    return join(this.root, name);
  }

  async write(name: string, content: string | object): Promise<void> {
    await mkdir(dirname(this.path(name)), { recursive: true });
    const text = typeof content === 'string' ? content : JSON.stringify(content);
    await writeFile(this.path(name), text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.root, { recursive: true });
  }
}

/** Sources of the project are plain JavaScript; one with `type error` in it does not compile. */
const compiler = `
const { cpSync, existsSync, readdirSync, readFileSync } = require('node:fs');
const { join } = require('node:path');
for (const folder of ['cli', 'test'].filter(existsSync)) {
  for (const name of readdirSync(folder).filter((name) => name.endsWith('.ts'))) {
    const path = join(folder, name);
    if (readFileSync(path, 'utf8').includes('type error')) {
      console.log(path + ': a type error');
      process.exitCode = 2;
    }
    cpSync(path, join('dist', path.replace(/ts$/, 'js')));
  }
}
`;

const bundler = `
import { cpSync, existsSync, mkdirSync } from 'node:fs';
import { basename, join } from 'node:path';
export function build({ absWorkingDir, entryPoints, outdir }) {
  mkdirSync(outdir, { recursive: true });
  for (const path of entryPoints.map((path) => join(absWorkingDir, path)).filter(existsSync)) {
    cpSync(path, join(outdir, basename(path)));
  }
  return { metafile: { outputs: {} } };
}
`;

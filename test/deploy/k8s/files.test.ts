import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { packageRoot } from '../../../shared/base/package-root.js';
import { filesUnder } from '../../docs/sources.js';
import { complaints, objectsIn, type KubernetesObject } from '../../support/kubernetes.js';

const folder = 'deploy/k8s';

describe('the manifest files', async () => {
  const root = join(packageRoot, folder);
  const files = (await readdir(root, { recursive: true })).filter((name) => name.endsWith('.yaml'));
  const texts = await Promise.all(files.map((name) => readFile(join(root, name), 'utf8')));
  const patches = new Set(files.flatMap((name, i) => patchesOf(name, texts[i]!)));
  const objects = texts
    .filter((_, i) => !patches.has(files[i]!))
    .flatMap(objectsIn)
    .filter(isForTheCluster);

  it('manifests are valid by the schemas of their APIs', () => {
    assert(objects.length > 20);
    assert.deepEqual(objects.flatMap(complaints), []);
  });

  it('manifests reference only existing files', async () => {
    const all = (await filesUnder('deploy')).filter((name) => /\.(ya?ml|conf|env)$/.test(name));
    const texts = await Promise.all(all.map((name) => readFile(join(packageRoot, name), 'utf8')));
    const path = /(?<![\w./-])(?:deploy|docs|test|components|overlays|base)\/[\w-][\w./-]*[\w]/g;
    const named = texts.flatMap((text, i) =>
      [...text.matchAll(path)].map(([name]) => ({ name, by: all[i]! })),
    );
    assert(named.length > 5);
    assert.deepEqual(
      named.filter(({ name }) =>
        [name, join(folder, name)].every((path) => !existsSync(join(packageRoot, path))),
      ),
      [],
    );
  });

  it('manifests fail validation with an unknown field or a field of the wrong type', () => {
    const [deployment] = objects.filter(({ kind }) => kind === 'Deployment');
    const unknown = { ...deployment!, spec: { ...(deployment!['spec'] as object), replicass: 2 } };
    assert.match(complaints(unknown).join(), /has \/spec\/replicass, which apps\/v1 does not know/);
    const wrong = { ...deployment!, spec: { ...(deployment!['spec'] as object), replicas: 'two' } };
    assert.match(complaints(wrong).join(), /replicas must be integer/);
  });
});

/** The files that a kustomization patches others with: they are parts of objects. */
function patchesOf(name: string, text: string): string[] {
  if (basename(name) !== 'kustomization.yaml') return [];
  const { patches = [] } = parse(text) as { patches?: { path: string }[] };
  return patches.map(({ path }) => join(dirname(name), path));
}

/** Whether an object is meant for the cluster: not for Kustomize, not another configuration. */
function isForTheCluster({ kind }: Partial<KubernetesObject>): boolean {
  return kind !== undefined && !['Kustomization', 'Component'].includes(kind);
}

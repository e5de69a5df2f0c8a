import { createRequire } from 'node:module';
import { runCommand } from '../../cli/run-command.js';
import { findExecutables, searchFolders } from '../../cli/nats-server/binary.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { parseAllDocuments } from 'yaml';

/** A Kubernetes object of any kind. */
export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

/**
 * The objects that `kubectl apply -k` would send for a folder.
 *
 * @returns the reason, if there is neither kubectl nor kustomize: a test skips with it.
 */
export async function kustomize(): Promise<
  ((folder: string) => Promise<KubernetesObject[]>) | string
> {
  const folders = searchFolders(process.env['PATH']);
  const [kubectl] = await findExecutables('kubectl', folders);
  const [alone] = await findExecutables('kustomize', folders);
  const program = kubectl ?? alone;
  if (program === undefined) return 'no kubectl and no kustomize on PATH';
  return async (folder) => {
    const words = [program === kubectl ? 'kustomize' : 'build', folder];
    const { code, output } = await runCommand(program, words, {
      cwd: packageRoot,
      timeoutMs: 60_000,
    });
    if (code !== 0) throw new Error(`${folder}: ${output}`);
    return objectsIn(output);
  };
}

export function objectsIn(yaml: string): KubernetesObject[] {
  return parseAllDocuments(yaml).map((document) => {
    const [error] = document.errors;
    if (error !== undefined) throw error;
    return document.toJS() as KubernetesObject;
  });
}

/**
 * The faults of an object by the schema of its API: wrong types, missing fields, and fields
 * that the schema does not know, which a cluster would drop or refuse.
 */
export function complaints(object: KubernetesObject): string[] {
  const name = `${object.kind} ${object.metadata.name}`;
  const validate = validatorOf(object);
  if (validate === undefined) return [`${name}: no schema of ${object.apiVersion}`];
  const { seen, unread } = watched(object);
  try {
    validate.call(seen);
  } catch (caught) {
    return [`${name}: ${(caught as Error).message}`];
  }
  return unread().map((path) => `${name} has ${path}, which ${object.apiVersion} does not know`);
}

/** The packages with the schemas, by the end of the API's group. */
const packages: readonly [group: RegExp, name: string][] = [
  [/^keda\.sh$/, '@kubernetes-models/keda'],
  [/^monitoring\.coreos\.com$/, '@kubernetes-models/prometheus-operator'],
  [/^(|apps|policy|batch|.*\.k8s\.io)$/, 'kubernetes-models'],
];
const require = createRequire(import.meta.url);

function validatorOf({ apiVersion, kind }: KubernetesObject): (() => void) | undefined {
  const group = apiVersion.includes('/') ? apiVersion.split('/')[0]! : '';
  const found = packages.find(([pattern]) => pattern.test(group));
  if (found === undefined) return undefined;
  try {
    const module = require(`${found[1]}/${apiVersion}/${kind}`) as Record<
      string,
      { prototype: { validate: () => void } }
    >;
    return module[kind]?.prototype.validate;
  } catch {
    return undefined;
  }
}

/**
 * A value that records its reads: a validator reads every field that its schema knows, by
 * name, and lists the fields of a map.
 */
function watched(value: object): { seen: object; unread: () => string[] } {
  const reports: (() => string[])[] = [];
  const watch = (target: object, path: string): object => {
    const read = new Set<string>();
    const children = new Map<string, object>();
    if (!Array.isArray(target)) {
      reports.push(() =>
        Object.keys(target)
          .filter((key) => !read.has(key))
          .map((key) => `${path}/${key}`),
      );
    }
    return new Proxy(target, {
      get(_, key) {
        const field: unknown = Reflect.get(target, key);
        if (typeof key !== 'string') return field;
        read.add(key);
        if (typeof field !== 'object' || field === null || !Object.hasOwn(target, key))
          return field;
        const child = children.get(key) ?? watch(field, `${path}/${key}`);
        children.set(key, child);
        return child;
      },
      ownKeys() {
        for (const key of Object.keys(target)) read.add(key);
        return Reflect.ownKeys(target);
      },
    });
  };
  return { seen: watch(value, ''), unread: () => reports.flatMap((report) => report()) };
}

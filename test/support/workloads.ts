import type { KubernetesObject } from './kubernetes.js';

/** The fields of Deployments, StatefulSets and Jobs that the tests read; the schemas are checked elsewhere. */
export interface Workload {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly replicas?: number;
    readonly strategy?: { readonly type: string };
    readonly template: {
      readonly metadata: { readonly labels: Readonly<Record<string, string>> };
      readonly spec: Pod;
    };
  };
}

export interface Pod {
  readonly terminationGracePeriodSeconds?: number;
  readonly automountServiceAccountToken?: boolean;
  readonly securityContext?: {
    readonly runAsNonRoot?: boolean;
    readonly fsGroup?: number;
    readonly fsGroupChangePolicy?: string;
  };
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
  readonly volumes?: readonly {
    readonly name: string;
    readonly configMap?: { readonly name: string };
    readonly emptyDir?: { readonly sizeLimit?: string; readonly medium?: string };
    readonly secret?: { readonly secretName: string };
    readonly persistentVolumeClaim?: { readonly claimName: string };
  }[];
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly command?: readonly string[];
  readonly args: readonly string[];
  readonly restartPolicy?: string; // Always: an init container that is a sidecar
  readonly env?: readonly {
    readonly name: string;
    readonly value?: string;
    readonly valueFrom?: {
      readonly configMapKeyRef?: { readonly name: string; readonly key: string };
      readonly secretKeyRef?: { readonly name: string };
    };
  }[];
  readonly envFrom?: readonly { readonly configMapRef: { readonly name: string } }[];
  readonly volumeMounts?: readonly {
    readonly name: string;
    readonly mountPath: string;
    readonly readOnly?: boolean;
    readonly subPathExpr?: string;
  }[];
  readonly startupProbe?: object;
  readonly livenessProbe?: object;
  readonly readinessProbe?: object;
  readonly resources: Readonly<Partial<Record<'requests' | 'limits', Record<string, unknown>>>>;
  readonly securityContext?: object;
}

/** The fields of a Job that decide about its pods. */
export interface Job {
  readonly spec: {
    readonly backoffLimit: number;
    readonly parallelism?: number;
    readonly completions?: number;
    readonly podReplacementPolicy: string;
    readonly podFailurePolicy: {
      readonly rules: readonly {
        readonly action: 'FailJob' | 'Ignore' | 'Count';
        readonly onExitCodes?: { readonly operator: string; readonly values: readonly number[] };
        readonly onPodConditions?: readonly { readonly type: string }[];
      }[];
    };
    readonly template: { readonly spec: Pod & { readonly restartPolicy: string } };
  };
}

/**
 * Kubernetes' reaction to a pod of the Job that ended with this code, by its documentation of Jobs: the first matching rule
 * decides; `replaced` counts towards `backoffLimit`, `replaced for free` does not.
 *
 * @param isDisrupted whether the pod was evicted, preempted or drained.
 */
export function fateOf(
  { spec }: Job,
  exitCode: number,
  isDisrupted = false,
): 'complete' | 'failed' | 'replaced' | 'replaced for free' {
  if (exitCode === 0) return 'complete';
  const rule = spec.podFailurePolicy.rules.find(
    ({ onExitCodes, onPodConditions }) =>
      (onExitCodes?.operator === 'In' && onExitCodes.values.includes(exitCode)) ||
      (isDisrupted && onPodConditions?.some(({ type }) => type === 'DisruptionTarget')),
  );
  if (rule?.action === 'FailJob') return 'failed';
  return rule?.action === 'Ignore' ? 'replaced for free' : 'replaced';
}

/** The fields of KEDA's ScaledObject that the tests read. */
/** How fast the number of replicas may change in each direction; of the policies of one, the largest change counts. */
export type ScalingRules = Partial<
  Record<
    'scaleUp' | 'scaleDown',
    {
      readonly policies: readonly {
        readonly type: 'Percent' | 'Pods';
        readonly value: number;
        readonly periodSeconds: number;
      }[];
    }
  >
>;

export interface ScaledObject {
  readonly spec: {
    readonly scaleTargetRef: { readonly kind?: string; readonly name: string };
    readonly fallback?: object;
    readonly triggers: readonly {
      readonly metricType?: string;
      readonly metadata: Readonly<Record<string, string>>;
    }[];
    readonly advanced?: {
      readonly horizontalPodAutoscalerConfig: { readonly behavior: ScalingRules };
    };
  };
}

/** What scales the workload of this name. */
export function scalingOf(
  objects: readonly KubernetesObject[],
  name: string,
): ScaledObject['spec'] {
  const scaled = objects.filter(({ kind }) => kind === 'ScaledObject');
  const specs = (scaled as unknown as ScaledObject[]).map(({ spec }) => spec);
  return specs.find(({ scaleTargetRef }) => scaleTargetRef.name === name)!;
}

/** The containers of a workload, each with its pod; none for other objects. */
export function podsOf(object: KubernetesObject): {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly pod: Pod;
  readonly container: Container;
}[] {
  if (!['Deployment', 'StatefulSet', 'Job'].includes(object.kind)) return [];
  const { metadata, spec } = object as unknown as Workload;
  const { metadata: of, spec: pod } = spec.template;
  return pod.containers.map((container) => ({
    name: metadata.name,
    labels: of.labels,
    pod,
    container,
  }));
}

/** Other objects that a container and its pod need, such as `Secret backend`. */
export function referencesOf(pod: Pod, { env = [], envFrom = [] }: Container): string[] {
  const fromVolumes = (pod.volumes ?? []).flatMap(
    ({ configMap, secret, persistentVolumeClaim: claim }) => [
      ...(configMap === undefined ? [] : [`ConfigMap ${configMap.name}`]),
      ...(secret === undefined ? [] : [`Secret ${secret.secretName}`]),
      ...(claim === undefined ? [] : [`PersistentVolumeClaim ${claim.claimName}`]),
    ],
  );
  const fromVariables = env.flatMap(({ valueFrom: { configMapKeyRef, secretKeyRef } = {} }) => [
    ...(configMapKeyRef === undefined ? [] : [`ConfigMap ${configMapKeyRef.name}`]),
    ...(secretKeyRef === undefined ? [] : [`Secret ${secretKeyRef.name}`]),
  ]);
  const fromMaps = envFrom.map(({ configMapRef }) => `ConfigMap ${configMapRef.name}`);
  return [...fromVolumes, ...fromVariables, ...fromMaps];
}

/** The environment of a container; values from a Secret or the pod are placeholders. */
export function environmentOf(
  { env = [], envFrom = [] }: Container,
  configMaps: readonly KubernetesObject[],
): Record<string, string> {
  const dataOf = (name: string): Record<string, string> =>
    configMaps.find(({ metadata }) => metadata.name === name)!['data'] as Record<string, string>;
  const fromMaps = envFrom.flatMap(({ configMapRef }) => Object.entries(dataOf(configMapRef.name)));
  const variables = env.map(({ name, value, valueFrom }): [string, string] => {
    const ref = valueFrom?.configMapKeyRef;
    return [name, value ?? (ref === undefined ? `tml-secret-${name}` : dataOf(ref.name)[ref.key]!)];
  });
  const all = Object.fromEntries([...fromMaps, ...variables]);
  return Object.fromEntries(
    Object.entries(all).map(([name, value]) => [
      name,
      value.replace(/\$\((\w+)\)/g, (_, other: string) => all[other] ?? ''),
    ]),
  );
}

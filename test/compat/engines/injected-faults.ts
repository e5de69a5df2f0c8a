import { cpSync } from 'node:fs';
import { join } from 'node:path';
import type { Adapter } from '../../../shared/model/lora.js';
import { swapped, type TrainedVersion } from '../../bench/canary-policies.js';

const servedModel = 'base'; // by vLLM

export type Body = Record<string, unknown>;

/** What is wrong between the trainer and the engine. */
export interface Fault {
  readonly what: string;
  /** The adapter that the actor is given as this version; by default the right one. */
  readonly adapter?: (version: number) => Adapter;
  /** Changes the body of a request to the engine, by the last part of its path. */
  readonly rewrite?: (call: string, body: Body, known: ReadonlyMap<number, LoadedName>) => Body;
  /** Whether it shows only in texts that fill a block of the engine's prefix cache. */
  readonly needsLongTexts?: true;
}

/** An adapter as the engine knows it. */
export interface LoadedName {
  readonly name: string;
  readonly folder: string;
}

/** How an engine's requests name an adapter. */
export interface Dialect {
  readonly kind: 'vllm' | 'sglang';
  /** The adapter that a request to sample names; undefined: the base model. */
  readonly adapterOf: (body: Body) => string | undefined;
  /** The same request with another adapter, or with none. */
  readonly withAdapter: (body: Body, name: string | undefined) => Body;
}

export const dialects = {
  vllm: {
    kind: 'vllm',
    adapterOf: ({ model }) =>
      typeof model === 'string' && model !== servedModel ? model : undefined,
    withAdapter: (body, name = servedModel) => ({ ...body, model: name }),
  },
  sglang: {
    kind: 'sglang',
    adapterOf: ({ lora_path: name }) => (typeof name === 'string' ? name : undefined),
    withAdapter: ({ lora_path: _, ...body }, name) =>
      name === undefined ? body : { ...body, lora_path: name },
  },
} satisfies Record<string, Dialect>;

interface Material {
  readonly own: readonly TrainedVersion[];
  readonly others: readonly TrainedVersion[]; // of another run
  readonly folder: string; // that the engine can read
}

/** Faults at each version of a trained policy. */
export function faultsOf({ own, others, folder }: Material, dialect: Dialect): Fault[] {
  const { kind, adapterOf, withAdapter } = dialect;
  const trained = (version: number) => own[version]!.adapter;
  const scaled = (by: number) => (version: number) => {
    const adapter = trained(version);
    return { ...adapter, alpha: by * adapter.alpha };
  };
  const at = (by: number) => (call: string, body: Body) => {
    if (call !== 'generate') return body;
    const params = body['sampling_params'] as Body;
    return {
      ...body,
      sampling_params: { ...params, temperature: by * Number(params['temperature']) },
    };
  };
  const inPlace = { lora_name: 'policy', lora_path: join(folder, 'policy'), load_inplace: true };
  const overwritten: Fault = {
    what: 'one adapter overwritten by each version, so that the prefix cache is stale',
    needsLongTexts: true,
    rewrite: (call, body) => {
      if (call === 'load_lora_adapter') {
        cpSync(String(body['lora_path']), inPlace.lora_path, { recursive: true });
        return { ...body, ...inPlace };
      }
      if (call !== 'generate' || body['model'] === servedModel) return body;
      const { cache_salt: _salt, ...unsalted } = body;
      return { ...unsalted, model: inPlace.lora_name };
    },
  };
  return [
    {
      what: 'adapter not loaded',
      rewrite: (call, body) => (call === 'generate' ? withAdapter(body, undefined) : body),
    },
    {
      what: 'previous version answers',
      rewrite: (call, body, known) => {
        if (call !== 'generate') return body;
        const before = known.get(versionIn(adapterOf(body) ?? '') - 1);
        return before === undefined ? body : withAdapter(body, before.name);
      },
    },
    {
      what: "the previous version's folder",
      rewrite: (call, body, known) => {
        if (call !== 'load_lora_adapter') return body;
        const before = known.get(versionIn(String(body['lora_name'])) - 1);
        return before === undefined ? body : { ...body, lora_path: before.folder };
      },
    },
    { what: "another run's adapter", adapter: (version) => others[version]!.adapter },
    { what: 'half the alpha', adapter: scaled(0.5) },
    { what: 'alpha 1 % too large', adapter: scaled(1.01) },
    {
      what: 'gate and up swapped',
      adapter: (version) => swapped(trained(version), 'gate_proj', 'up_proj'),
    },
    { what: 'temperature 10 % too high', rewrite: at(1.1) },
    { what: 'temperature 1 % too high', rewrite: at(1.01) },
    ...(kind === 'vllm' ? [overwritten] : []), // SGLang overwrites no adapter
  ];
}

/** The version in an adapter's name, as the actor gives it. */
export function versionIn(name: string): number {
  return Number(/\.v(\d+)\./.exec(name)?.[1] ?? -1);
}

import { Counter, Gauge } from 'prom-client';
import type { EngineLease } from '../../shared/wire/actor-lease.js';
import type { Outage } from './engine-watch.js';
import type { Replica } from './replica.js';

const loadedAdapters = new Gauge({
  name: 'rl_actor_engine_adapters',
  help: 'Adapters that this actor has loaded at its engine.',
});
const slotsOf = new Gauge({
  name: 'rl_actor_engine_slots',
  help: 'Adapters that this actor may have loaded at an engine server at once: its slots, or --engine-max-loras.',
  labelNames: ['engine'],
});
const versionsOf = new Gauge({
  name: 'rl_actor_engine_versions',
  help: 'Policy versions in the slots of an engine server that this actor may sample with there: loaded, with their canary reproduced.',
  labelNames: ['engine'],
});
const enginesUp = new Gauge({
  name: 'rl_actor_engines_up',
  help: 'Engine servers that this actor can sample with now.',
});
const isUp = new Gauge({
  name: 'rl_actor_engine_up',
  help: 'Whether this actor samples with an engine server now (1), and its release.',
  labelNames: ['engine', 'release'],
});
const requests = new Gauge({
  name: 'rl_actor_engine_requests',
  help: 'Sequences that an engine server is decoding (running) or that wait for a place in its batch (waiting), of all its clients.',
  labelNames: ['engine', 'state'],
});
const kvUsage = new Gauge({
  name: 'rl_actor_engine_kv_cache_usage',
  help: 'Share of the cache of keys and values of an engine server that is in use, 0 to 1.',
  labelNames: ['engine'],
});
const preemptions = new Gauge({
  name: 'rl_actor_engine_preemptions',
  help: 'Sequences that an engine server has pushed out of its cache to decode others, since it started; each is read again later.',
  labelNames: ['engine'],
});
const outages = new Counter({
  name: 'rl_actor_engine_outages_total',
  help: 'Times that an engine server went out of use, because it was down, hung, restarted, had evicted adapters, did not load a version or did not reproduce a canary.',
  labelNames: ['engine', 'outage'],
});

const refusals = new Counter({
  name: 'rl_actor_engine_refusals_total',
  help: 'Attempts at which an engine server did not load a version or reproduce a canary, so that it went or stayed out of use.',
  labelNames: ['engine', 'outage'],
});

/** Counts an attempt at which a server did not load a version or reproduce its canary. */
export function reportRefusal(url: string, outage: Outage): void {
  refusals.inc({ engine: url, outage });
}

/** Counts that a server went out of use; undefined: it came back. */
export function reportOutage(url: string, outage: Outage | undefined): void {
  if (outage !== undefined) outages.inc({ engine: url, outage });
}

/**
 * Exports the servers as they are now. What a server does not say has no series.
 *
 * @param adapters loaded by this actor.
 * @param slots adapters that the actor may have loaded at each server.
 */
export function reportEngines(replicas: readonly Replica[], adapters: number, slots: number): void {
  loadedAdapters.set(adapters);
  enginesUp.set(replicas.filter((replica) => replica.isUp).length);
  for (const gauge of [isUp, requests, kvUsage, preemptions]) gauge.reset();
  for (const { server, release, isUp: used, metrics, provenAdapters } of replicas) {
    const engine = server.url;
    isUp.set({ engine, release: release ?? 'unknown' }, used ? 1 : 0);
    slotsOf.set({ engine }, slots);
    versionsOf.set({ engine }, provenAdapters);
    const states = { running: metrics?.running, waiting: metrics?.waiting };
    for (const [state, count] of Object.entries(states)) {
      if (count !== undefined) requests.set({ engine, state }, count);
    }
    if (metrics?.kvUsage !== undefined) kvUsage.set({ engine }, metrics.kvUsage);
    if (metrics?.preemptions !== undefined) preemptions.set({ engine }, metrics.preemptions);
  }
}

/** @param slots adapters that the actor may have loaded at each server. */
export function leaseOfReplica(replica: Replica, slots: number): EngineLease {
  const { server, release, reason, refused, metrics, provenAdapters: adapters } = replica;
  const { running, waiting, kvUsage: usage } = metrics ?? {};
  return {
    url: server.url.slice(0, 512),
    ...(release === undefined ? {} : { release: release.slice(0, 64) }),
    ...(reason === undefined ? {} : { trouble: reason.slice(0, 512) }),
    ...(refused === undefined ? {} : { refused }),
    ...(running === undefined ? {} : { running: Math.round(running) }),
    ...(waiting === undefined ? {} : { waiting: Math.round(waiting) }),
    ...(usage === undefined ? {} : { kvUsage: usage }),
    adapters,
    slots,
  };
}

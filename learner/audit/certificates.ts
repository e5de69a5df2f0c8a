import type { PolicyStore } from '../../shared/broker/policy-store.js';
import { canaryDigest } from '../../shared/wire/canary.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { versionsIn } from '../../shared/wire/rollout-group.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import { StatTable } from '../report/stat-table.js';
import type { Verdict } from '../groups/check-scored-group.js';

const uncertifiedStats = new StatTable<number>([
  {
    jsonl: 'groups/without_certificate',
    prometheus: 'rl_groups_without_certificate',
    help: 'Groups received by this learner whose actor did not say that it had reproduced the canary of every version that sampled them.',
    of: (groups) => groups,
  },
]);

/** The canaries of the published versions, against which the certificates of groups are checked. */
export class Certificates {
  readonly #digests = new Map<number, string>(); // by version
  #uncertified = 0;

  /** To be called before actors can know the version. */
  add({ version, canary }: Pick<PolicyManifest, 'version' | 'canary'>): void {
    if (canary === undefined) this.#digests.delete(version);
    else this.#digests.set(version, canaryDigest(version, canary));
    if (this.#digests.size > remembered) this.#digests.delete(Math.min(...this.#digests.keys()));
  }

  /** Reads the versions that earlier sessions of the run have published. */
  async recall(policy: Pick<PolicyStore, 'versions' | 'at'>): Promise<void> {
    for (const version of await policy.versions()) {
      const manifest = await policy.at(version);
      if (manifest !== undefined) this.add(manifest);
    }
  }

  verdict(scored: ScoredGroup): Verdict {
    const claimed = new Map(scored.group.certificate?.canaries);
    const isWrong = ([version, digest]: [number, string]) =>
      this.#digests.has(version) && this.#digests.get(version) !== digest;
    if ([...claimed].some(isWrong)) return 'wrong';
    const isCertified = (version: number) =>
      claimed.has(version) && claimed.get(version) === this.#digests.get(version);
    return versionsIn(scored.group.rollouts).every(isCertified) ? 'certified' : 'uncertified';
  }

  /** Counts a group that is used. */
  count(verdict: Verdict): void {
    if (verdict === 'uncertified') this.#uncertified += 1;
    uncertifiedStats.record(this.#uncertified);
  }

  /** The metrics, by their names in `metrics.jsonl`. */
  get metrics(): Readonly<Record<string, number>> {
    return uncertifiedStats.record(this.#uncertified);
  }
}

/** Many more versions than a staleness bound leaves useful. */
const remembered = 1_024;

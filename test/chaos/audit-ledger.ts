import type { Checkpoint } from '../../shared/wire/ledger.js';
import type { Lineages } from './lineage.js';

/** A checkpoint of the run's ledger, as seen by polling. */
export type LedgerSight = Pick<Checkpoint, 'step' | 'statePath'> & {
  /** The ledger's file was damaged since the previous sight, so checkpoints may be lost. */
  readonly isAfterDamage: boolean;
};

/**
 * Checks whether a ledger ever lost a checkpoint: steps only rise, and its weights descend from those
 * that it named before. After damage to its file it may fall back by one checkpoint at most.
 *
 * @param sights in order, the first of the run first.
 */
export function auditLedger(sights: readonly LedgerSight[], lineages: Lineages): string[] {
  const problems: string[] = [];
  const models = new Set<string>(); // models whose weights were named
  let before: LedgerSight | undefined;
  let fallback = 0; // step of the checkpoint before the last
  for (const sight of sights) {
    const { step, statePath, isAfterDamage } = sight;
    const chain = descent(lineages, statePath);
    if (chain === undefined) {
      problems.push(`the ledger names ${statePath}, which the backend never saved`);
    } else {
      if (before !== undefined && !chain.some((model) => models.has(model))) {
        problems.push(
          `the ledger was at step ${before.step}, and was overwritten with step ${step} of weights that do not come from it`,
        );
      }
      for (const model of chain) models.add(model);
    }
    const least = isAfterDamage ? fallback : (before?.step ?? 0);
    if (before !== undefined && step < least) {
      problems.push(`the ledger fell from step ${before.step} to step ${step}`);
    }
    if (before !== undefined && step !== before.step) fallback = before.step;
    before = sight;
  }
  return problems;
}

function descent(lineages: Lineages, statePath: string): string[] | undefined {
  try {
    return lineages.chain(lineages.saved(statePath)).map(({ model }) => model);
  } catch {
    return undefined;
  }
}

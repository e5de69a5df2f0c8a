import { staleness } from '../../shared/rl/staleness.js';
import type { Checkpoint } from '../../shared/wire/ledger.js';
import type { Lineages, Operation, Point } from './lineage.js';

/** All outside observations of a run, and its final ledger. */
export interface Evidence {
  readonly maxStepsOffPolicy: number;
  readonly groupsPerBatch: number;
  readonly numSubsteps: number;
  readonly numMinibatches: number; // per substep
  readonly ledger: Pick<
    Checkpoint,
    | 'step'
    | 'version'
    | 'statePath'
    | 'nextOrder'
    | 'consumedBelow'
    | 'consumedAbove'
    | 'counts'
    | 'rewinds'
  >;
  /** Orders of training tickets that were published. */
  readonly issued: ReadonlySet<number>;
  /** Scored training groups, by their key in a pass. */
  readonly scored: ReadonlyMap<string, ScoredSeen>;
  /** Orders of tickets in the dead-letter stream, with their counts. */
  readonly dead: ReadonlyMap<number, number>;
  /** Versions as an observer of the manifest saw them, in order. */
  readonly versions: readonly number[];
  /** Operations that the backend answered. */
  readonly operations: readonly Operation[];
}

export interface ScoredSeen {
  readonly order: number;
  readonly isUniform: boolean; // no variance in its rewards
  readonly sampledBy: readonly number[]; // versions
}

export interface Audit {
  /** Sentences; none if all is well. */
  readonly violations: readonly string[];
  readonly trained: number; // groups in the surviving weights
  readonly largestStaleness: number; // steps, of those groups, by their weights' true descent
  readonly lost: number; // groups trained into weights that did not survive, so trained again
  /** [steps] the largest staleness of each surviving step. */
  readonly stalenessOfSteps: readonly number[];
}

/**
 * Audits a run by outside observations: every ticket has exactly one outcome, the surviving
 * weights were trained once on each group and on none too old, and versions only rose. It trusts
 * neither the learner's counters nor its notion of staleness: the weights' descent is read from the
 * operations that the backend answered.
 */
export function audit(evidence: Evidence, lineages: Lineages): Audit {
  const { ledger, scored, operations } = evidence;
  const violations: string[] = [];
  const survivor = lineages.saved(ledger.statePath);

  const trained = trainedGroups(lineages, survivor, scored, violations);
  checkBooks(evidence, violations);
  checkEnds(evidence, trained, violations);
  checkSteps(evidence, lineages, survivor, violations);
  evidence.versions.forEach((version, i) => {
    const before = evidence.versions[i - 1];
    if (before !== undefined && version <= before)
      violations.push(`version ${version} was published after ${before}`);
  });
  checkRewinds(evidence, lineages, survivor, violations);
  const stalenessOfSteps = checkStaleness(evidence, lineages, trained, violations);
  const everTrained = new Set(operations.flatMap(({ groups }) => groups ?? []));
  const survived = new Set(trained.map(({ key }) => key));
  const lost = [...everTrained].filter((key) => !survived.has(key)).length;
  const largestStaleness = Math.max(0, ...stalenessOfSteps);
  return { violations, trained: trained.length, largestStaleness, lost, stalenessOfSteps };
}

interface TrainedGroup extends ScoredSeen {
  readonly key: string;
  readonly step: number; // trained on it, from 1
  readonly at: Point; // the weights at the start of this step
}

function trainedGroups(
  lineages: Lineages,
  survivor: Point,
  scored: Evidence['scored'],
  violations: string[],
): TrainedGroup[] {
  const trained: TrainedGroup[] = [];
  const orders = new Set<number>();
  lineages.steps(survivor).forEach(({ substeps, from }, i) => {
    for (const { model, seq, groups = [] } of substeps.flat()) {
      for (const key of groups) {
        const group = scored.get(key);
        if (group === undefined) {
          violations.push(`operation ${seq} of ${model} trained on a group that nobody scored`);
          continue;
        }
        if (orders.has(group.order)) violations.push(`ticket ${group.order} was trained twice`);
        orders.add(group.order);
        trained.push({ ...group, key, step: i + 1, at: from });
      }
    }
  });
  return trained;
}

function checkBooks({ ledger }: Evidence, violations: string[]): void {
  const { issued, trained, skippedZeroVariance, stale, dead, outstanding } = ledger.counts;
  const sum = trained + skippedZeroVariance + stale + dead + outstanding;
  if (issued !== sum) violations.push(`${issued} tickets issued, ${sum} accounted for`);
  if (outstanding !== 0) violations.push(`${outstanding} tickets are outstanding at the end`);
}

/** Checks that each order below the next one has exactly one outcome, with evidence for it. */
function checkEnds(
  { ledger, issued, scored, dead }: Evidence,
  trained: readonly TrainedGroup[],
  violations: string[],
): void {
  const { nextOrder, consumedBelow, counts } = ledger;
  const consumedAbove = new Set(ledger.consumedAbove);
  const trainedOrders = new Set(trained.map(({ order }) => order));
  const seen = [...scored.values()];
  const arrived = new Set(seen.map(({ order }) => order));
  const uniform = new Set(seen.filter(({ isUniform }) => isUniform).map(({ order }) => order));
  // A reissue counts as one more issued and one more stale; the remaining stale ones are final.
  const gone = nextOrder - counts.issued + counts.stale;
  const tooLate: number[] = []; // arrived with variance but not trained
  for (let order = 0; order < nextOrder; order++) {
    const hasEnded = order < consumedBelow || consumedAbove.has(order);
    if (!issued.has(order)) violations.push(`ticket ${order} is in the books but was never issued`);
    if (!hasEnded) violations.push(`ticket ${order} has not ended`);
    else if (!trainedOrders.has(order) && !uniform.has(order) && !dead.has(order)) {
      if (arrived.has(order)) tooLate.push(order);
      else violations.push(`ticket ${order} has ended, and nothing tells how`);
    }
  }
  for (const order of trainedOrders) {
    if (order >= nextOrder) violations.push(`ticket ${order} was trained and is not in the books`);
  }
  if (counts.trained !== trainedOrders.size) {
    violations.push(
      `the ledger says ${counts.trained} groups trained, the weights ${trainedOrders.size}`,
    );
  }
  if (tooLate.length > gone) {
    violations.push(
      `${tooLate.length} groups with variance were not trained, but only ${gone} were stale: ` +
        `of tickets ${tooLate.join(', ')}; dead letters of ${[...dead.keys()].join(', ') || 'none'}; ` +
        `the ledger counts ${JSON.stringify(counts)}`,
    );
  }
  const others = counts.skippedZeroVariance + counts.dead + gone;
  if (nextOrder - trainedOrders.size !== others) {
    violations.push(
      `${nextOrder - trainedOrders.size} tickets of ${nextOrder} were not trained, but ${others} skipped, dead or stale`,
    );
  }
}

/** Checks the number of optimizer steps of each step (fewer if the learner was stopped) and their minibatches. */
function checkSteps(
  { ledger, groupsPerBatch, numSubsteps, numMinibatches }: Evidence,
  lineages: Lineages,
  survivor: Point,
  violations: string[],
): void {
  const steps = lineages.steps(survivor);
  const perPass = groupsPerBatch / numSubsteps / numMinibatches;
  steps.forEach(({ substeps, from }, i) => {
    const isLastOfModel = steps[i + 1]?.from.model !== from.model;
    if (substeps.length > numSubsteps || (substeps.length < numSubsteps && !isLastOfModel)) {
      violations.push(`step ${i + 1} has ${substeps.length} optimizer steps, not ${numSubsteps}`);
    }
    substeps.forEach((passes, s) => {
      const sizes = passes.map(({ groups = [] }) => groups.length);
      if (sizes.length === numMinibatches && sizes.every((size) => size === perPass)) return;
      violations.push(
        `optimizer step ${s + 1} of step ${i + 1} had minibatches of ${sizes.join(', ') || 'no'} groups, not ${numMinibatches} of ${perPass}`,
      );
    });
  });
  if (steps.length !== ledger.step)
    violations.push(`the ledger is at step ${ledger.step}, its weights at step ${steps.length}`);
}

/** Checks that the ledger's rewinds give the true step counts, up to the staleness bound. */
function checkRewinds(
  { ledger, versions, maxStepsOffPolicy }: Evidence,
  lineages: Lineages,
  survivor: Point,
  violations: string[],
): void {
  const counted = (steps: number) => Math.min(steps, maxStepsOffPolicy + 1);
  for (const version of versions) {
    const published = lineages.published(version);
    if (published === undefined) {
      violations.push(`version ${version} was announced, and its weights never were saved`);
      continue;
    }
    const told = staleness(ledger.version, [version], ledger.rewinds ?? []);
    const steps = lineages.distance(published, survivor);
    if (counted(told) !== counted(steps))
      violations.push(
        `version ${version} is ${steps} steps from the last weights, by the ledger's rewinds ${told}`,
      );
  }
}

/**
 * The steps between the weights that sampled a group and those at the start of the step that trained on it.
 *
 * @returns [steps] the largest of each step.
 */
function checkStaleness(
  { maxStepsOffPolicy }: Evidence,
  lineages: Lineages,
  trained: readonly TrainedGroup[],
  violations: string[],
): number[] {
  const largest: number[] = [];
  for (const { order, sampledBy, at, step } of trained) {
    for (const version of sampledBy) {
      const sampler = lineages.published(version);
      if (sampler === undefined) {
        violations.push(`ticket ${order} was sampled by version ${version}, which never was`);
        continue;
      }
      const staleness = lineages.distance(sampler, at);
      largest[step - 1] = Math.max(largest[step - 1] ?? 0, staleness);
      if (staleness > maxStepsOffPolicy)
        violations.push(
          `ticket ${order}, sampled by version ${version}, was trained ${staleness} steps from it; ${maxStepsOffPolicy} are allowed`,
        );
    }
  }
  return largest;
}

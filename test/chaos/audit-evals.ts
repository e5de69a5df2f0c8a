import type { EvalResult } from '../../shared/wire/eval-result.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { Score } from '../../shared/wire/scored-group.js';

export interface EvalEvidence {
  readonly results: readonly EvalResult[]; // in the run's history
  readonly delivered: readonly RolloutGroup[]; // of evaluations, as actors sent them
  readonly problems: number;
  readonly samples: number;
  /** The task's rewards for the answers of a group. */
  readonly scores: (group: RolloutGroup) => readonly Score[] | undefined;
}

/**
 * Compares evaluation results with the answers that actors sent. A version whose evaluation a crash
 * ended is evaluated again and may be answered twice: a result is right if some choice of the answers gives it.
 */
export function auditEvals(evidence: EvalEvidence): string[] {
  const { results, delivered, problems, samples, scores } = evidence;
  const complaints: string[] = [];
  for (const { version, lost, answers } of results) {
    const own = delivered.filter(({ ticket }) => ticket.pinnedVersion === version);
    for (const kind of ['sampled', 'greedy'] as const) {
      const { correct, total } = answers[kind];
      for (let problem = 0; problem < problems; problem++) {
        const complain = (what: string) =>
          complaints.push(
            `the evaluation of version ${version} has ${what} (${kind}, problem ${problem})`,
          );
        const expected = kind === 'greedy' ? 1 : samples;
        if (lost === 0 && total[problem] !== expected) {
          complain(`${total[problem] ?? 'no'} answers, not ${expected}`);
        }
        // A ticket's number determines its problem, and each kind has its own temperature.
        const groups = own.filter(
          ({ ticket }) =>
            ticket.order % problems === problem &&
            (ticket.samplingParams.temperature === 0) === (kind === 'greedy'),
        );
        const rights = groups.map(
          (group) => (scores(group) ?? []).filter(({ isCorrect }) => isCorrect).length,
        );
        const found = correct[problem] ?? 0;
        if (lost === 0 && !sums(rights, groups).has(found)) {
          complain(`${found} right answers; those that actors sent do not make that many`);
        }
      }
    }
  }
  return complaints;
}

/** The possible results of choosing one group for each ticket number. */
function sums(rights: readonly number[], groups: readonly RolloutGroup[]): Set<number> {
  const byOrder = new Map<number, Set<number>>();
  groups.forEach(({ ticket }, i) => {
    byOrder.set(ticket.order, (byOrder.get(ticket.order) ?? new Set()).add(rights[i]!));
  });
  let totals = new Set(byOrder.size === 0 ? [] : [0]);
  for (const choices of byOrder.values()) {
    totals = new Set([...totals].flatMap((total) => [...choices].map((more) => total + more)));
  }
  return totals;
}

/** A ticket that no step has taken yet. */
export interface WindowTicket {
  readonly order: number; // its position in the run's sequence of tickets
  readonly deadline: number; // the last version that may train on its group
  readonly hasArrived: boolean; // its scored group is here
}

/** Where the learner stands when it wants a minibatch. */
export interface StepState {
  readonly version: number; // of the weights that the step in progress trains
  readonly taken: number; // groups that this step has already
  readonly groupsPerBatch: number;
}

/**
 * The groups of the next minibatch: among those that have arrived, the first tickets first, but only
 * as far as every other ticket can still be trained by its deadline. A slow group is therefore
 * overtaken while there is time and waited for when there is none, so that it is never dropped for
 * being slow.
 *
 * The test is that of deadline scheduling: through version d there are
 * `(d - version + 1) · groupsPerBatch - taken` places left, and the tickets due by then must fit.
 * The capacity law makes this true when a ticket is issued; this choice keeps it true.
 *
 * @param tickets in ticket order; those past their deadline must have been refused before.
 * @returns `size` orders, in ticket order; undefined while the right ones have not arrived.
 */
export function chooseGroups(
  tickets: readonly WindowTicket[],
  step: StepState,
  size: number,
): number[] | undefined {
  // slack[i]: places left through version + i, minus the tickets that are due by then.
  const horizon = Math.max(0, ...tickets.map(({ deadline }) => deadline - step.version));
  const slack = Array.from(
    { length: horizon },
    (_, i) => (i + 1) * step.groupsPerBatch - step.taken,
  );
  for (const { deadline } of tickets) {
    const due = deadline - step.version;
    if (due < 0) continue; // cannot be saved, so nothing is kept free for it
    for (let i = due; i < horizon; i++) slack[i]! -= 1;
  }

  const chosen: number[] = [];
  for (const { order, deadline, hasArrived } of tickets) {
    if (!hasArrived) continue;
    // Taking it uses a place that the tickets due before it may need.
    const due = Math.max(0, deadline - step.version);
    const earlier = slack.slice(0, due);
    if (earlier.some((places) => places < 1)) continue;
    for (let i = 0; i < due; i++) slack[i]! -= 1;
    chosen.push(order);
    if (chosen.length === size) return chosen;
  }
  return undefined;
}

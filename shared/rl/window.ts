/** A ticket not yet taken by a step. */
export interface WindowTicket {
  readonly order: number; // its position in the run's sequence of tickets
  readonly deadline: number; // the last version that may train on its group
  readonly hasArrived: boolean; // its scored group has arrived
}

/**
 * The policy for a missing group that must be trained now or never: `wait` for it, or train on the groups
 * that have arrived and `drop` it later. With `tokens` there is no such group, because the bound holds for each token: a
 * group has time until its newest token is too old, and its older ones are masked.
 */
export type WindowPolicy = 'wait' | 'drop' | 'tokens';

/** The state of the learner when it needs a minibatch. */
interface StepState {
  readonly version: number; // of the weights that the step in progress trains
  readonly taken: number; // groups that this step already has
  readonly groupsPerBatch: number;
}

/**
 * The groups of the next minibatch: those that have arrived, in ticket order.
 *
 * With `wait`, a group is taken only if every other ticket can still be trained by its deadline: a slow
 * group is overtaken while there is time and waited for when there is none, so it is never dropped for
 * being slow. With `drop` and `tokens`, the learner never waits for a slow group; with `drop` one that is too late is lost.
 *
 * The test of `wait` is that of deadline scheduling: through version d there are
 * `(d - version + 1) · groupsPerBatch - taken` places left, and the tickets due by then must fit.
 * The capacity law ensures this when a ticket is issued; this choice preserves it.
 *
 * @param tickets in ticket order; those past their deadline must have been refused before.
 * @returns `size` orders, in ticket order; undefined while the right ones have not arrived.
 */
export function chooseGroups(
  policy: WindowPolicy,
  tickets: readonly WindowTicket[],
  step: StepState,
  size: number,
): number[] | undefined {
  const takePlace = policy === 'wait' ? placesBesideOthers(tickets, step) : (): boolean => true;
  const chosen: number[] = [];
  for (const ticket of tickets) {
    if (!ticket.hasArrived || !takePlace(ticket)) continue;
    chosen.push(ticket.order);
    if (chosen.length === size) return chosen;
  }
  return undefined;
}

/**
 * The groups of the next minibatch of synchronous training: the first `size` tickets, whenever their
 * groups arrive. The whole batch must be trained now, so waiting loses nothing, and the training order
 * does not depend on timing.
 *
 * @param tickets in ticket order.
 */
export function nextInOrder(tickets: readonly WindowTicket[], size: number): number[] | undefined {
  const next = tickets.slice(0, size);
  const areHere = next.length === size && next.every(({ hasArrived }) => hasArrived);
  return areHere ? next.map(({ order }) => order) : undefined;
}

/** Assigns places to one ticket after another; refuses a ticket whose place another one may need. */
function placesBesideOthers(
  tickets: readonly WindowTicket[],
  step: StepState,
): (ticket: WindowTicket) => boolean {
  // Places are counted for versions up to the last deadline.
  const horizon = Math.max(0, ...tickets.map(({ deadline }) => deadline - step.version));
  // slack[i]: places left through version + i, minus the tickets that are due by then.
  const slack = Array.from(
    { length: horizon },
    (_, i) => (i + 1) * step.groupsPerBatch - step.taken,
  );
  for (const { deadline } of tickets) {
    const due = deadline - step.version;
    if (due < 0) continue; // past its deadline, so no place is reserved for it
    for (let i = due; i < horizon; i++) slack[i]! -= 1;
  }

  return ({ deadline }) => {
    // Taking it uses a place that tickets with earlier deadlines may need.
    const due = Math.max(0, deadline - step.version);
    if (slack.slice(0, due).some((places) => places < 1)) return false;
    for (let i = 0; i < due; i++) slack[i]! -= 1;
    return true;
  };
}

import { waitsOver, waitText, type WaitShares } from '../../status/waits.js';
import type { Flow } from './flow.js';
import type { History } from './history.js';

/** Somebody who could work, how much of the time he waited, and for what. */
export interface Waiting {
  readonly who: string;
  readonly share: number; // of the time
  readonly causes: readonly { readonly share: number; readonly why: string }[]; // largest first
}

const reasons: Readonly<Record<string, string>> = {
  // of the learner
  groups: 'too few scored groups are here',
  window: 'an older group must be waited for, or it would become too old',
  version: 'no ticket may be issued before a version has reached the actors',
  // of actors
  ticket: 'no ticket: as many groups are out as staleness allows',
  policy: 'no policy version that is new enough',
  publish: 'nowhere to put its groups: the queue of rollouts is full',
};

/** As far back as waiting is averaged, in steps: the time between them is that of ten. */
const recentSteps = 11;

/** Less than this is not worth a word. */
const noticeable = 0.005;

/** How the learner spent its last steps; undefined before there are two. */
export function learnerWaiting({ steps }: Pick<History, 'steps'>): Waiting | undefined {
  const waits = waitsOver(steps.slice(-recentSteps));
  return waits && waiting('learner', waits.learner);
}

/** How each actor spent the last seconds, as far as they told. */
export function actorsWaiting({ actors }: Pick<Flow, 'actors'>): Waiting[] {
  return actors.flatMap(({ name, idle }) => (idle === undefined ? [] : [waiting(name, idle)]));
}

/** Who holds the run up, in a sentence or two. */
export function bottleneck({ steps }: Pick<History, 'steps'>): string {
  const waits = waitsOver(steps.slice(-recentSteps));
  if (waits === undefined) return 'Not known yet.';
  const text = waitText(waits);
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function waiting(who: string, shares: WaitShares): Waiting {
  const causes = Object.entries(shares)
    .map(([cause, share]) => ({ share, why: reasons[cause] ?? cause }))
    .filter(({ share }) => share >= noticeable)
    .sort((a, b) => b.share - a.share);
  const share = Object.values(shares).reduce((total, each) => total + each, 0);
  return { who, share: Math.min(1, share), causes };
}

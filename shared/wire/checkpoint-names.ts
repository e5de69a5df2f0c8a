/** The names under which a learner saves checkpoints at the backend. */

/** The name of the training state after a step: `state-000120`. */
export function stateName(step: number): string {
  return `state-${padded(step)}`;
}

/** The name of a version's weights for sampling: `policy-000120`. */
export function policyName(version: number): string {
  return `policy-${padded(version)}`;
}

/** The name of a version's weights for download, if the weights for sampling have no archive: `policy-000120-files`. */
export function policyFilesName(version: number): string {
  return `${policyName(version)}-files`;
}

/** @returns the step after which a training state was saved; undefined if the name is not one of `stateName`. */
export function stepOfState(name: string): number | undefined {
  const digits = /^state-(\d{6,})$/.exec(name)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** Whether a learner saves checkpoints under such a name; others are not ours. */
export function isSavedByLearner(name: string): boolean {
  return /^(state|policy)-\d{6,}(-files)?$/.test(name);
}

function padded(count: number): string {
  return String(count).padStart(6, '0');
}

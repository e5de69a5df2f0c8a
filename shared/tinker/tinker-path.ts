import { PermanentError } from '../base/errors.js';

/** `tinker://<run>/weights/<name>`: a saved state; `sampler_weights` or `external_weights`: an adapter alone. */
export interface TinkerPath {
  readonly runId: string;
  readonly kind: 'weights' | 'sampler_weights' | 'external_weights';
  readonly name: string;
}

/** Parses a path. @throws {PermanentError} unless it has three parts and a known kind. */
export function parseTinkerPath(path: string): TinkerPath {
  const [, runId, kind, name] =
    /^tinker:\/\/([^/]+)\/(weights|sampler_weights|external_weights)\/([^/]+)$/.exec(path) ?? [];
  if (runId === undefined || name === undefined || isDots(runId) || isDots(name)) {
    throw new PermanentError(
      `${JSON.stringify(path)} is no tinker path, as in tinker://<run>/weights/<name>`,
    );
  }
  return { runId, kind: kind as TinkerPath['kind'], name };
}

/** API path of a run's checkpoints. */
export function checkpointsUrl(runId: string): string {
  return `/api/v1/training_runs/${encodeURIComponent(runId)}/checkpoints`;
}

/** API path of one checkpoint. */
export function checkpointUrl({ runId, kind, name }: TinkerPath): string {
  return `${checkpointsUrl(runId)}/${kind}/${encodeURIComponent(name)}`;
}

/** Whether a run or a checkpoint can have this name. */
export function isName(name: string): boolean {
  return /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(name);
}

/**
 * Checks a checkpoint name: TuFT uses it as a directory name without checking it.
 *
 * @throws {PermanentError} on a name that could leave that directory.
 */
export function checkName(name: string): string {
  if (!isName(name)) {
    throw new PermanentError(
      `${JSON.stringify(name)} is no checkpoint name: 1 to 128 letters, digits, ., _ or -`,
    );
  }
  return name;
}

function isDots(part: string): boolean {
  return part === '.' || part === '..';
}

import { UserError } from '../../shared/base/errors.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import type { FoundRun } from '../existing-run/find-run.js';
import type { FoundVersion } from './find-version.js';

/**
 * Whether the run may delete the weights while they are measured. Others are copied, or restored, before the first
 * answer; those that a backend of the user's own samples with are the run's.
 */
export function areWeightsOfTheRun(
  { backendUrl, sampler }: Pick<FoundRun, 'backendUrl' | 'sampler'>,
  { samplerPath }: Pick<FoundVersion, 'samplerPath'>,
): boolean {
  return backendUrl !== undefined && sampler === 'tinker' && samplerPath !== undefined;
}

/**
 * Waits for a measurement. Once a run has retired a version, the backend has no weights to answer the rest of the tickets
 * with, and what was answered before is no score: it is over whichever problems came first.
 *
 * @param isKept whether the run still keeps the version; asked only if answers are missing. If this is
 *   unknown, the score is reported all the same.
 * @throws {UserError} if answers are missing and the run no longer keeps the version; else what `measured` rejects with.
 */
export async function refuseRetired(
  measured: Promise<EvalResult>,
  { run, version }: { readonly run: string; readonly version: number },
  isKept: () => Promise<boolean>,
): Promise<EvalResult> {
  const refuse = async (cause?: unknown) => {
    if (await isKept().catch(() => true)) return;
    throw new UserError(
      `run ${run} has deleted version ${version} while it was measured, so answers are missing; ` +
        'measure a saved one (--version best), or wait for the end of the run',
      { cause },
    );
  };
  const result = await measured.catch(async (caught: unknown) => {
    await refuse(caught);
    throw caught;
  });
  if (result.lost > 0) await refuse();
  return result;
}

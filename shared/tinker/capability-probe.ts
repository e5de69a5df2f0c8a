import type { z } from 'zod';
import { errorText } from '../base/errors.js';
import { isAbort, markHandled, unlessAborted } from '../base/task-scope.js';
import type { Answer } from './answer.js';
import {
  CopyWeightsRequest,
  CreateCustomLossRequest,
  GetInfoRequest,
  LoadWeightsRequest,
  SaveWeightsExternalRequest,
  UnloadModelRequest,
} from './api.js';
import {
  CancelFutureRequest,
  JoinSamplingSessionRequest,
  RetrieveFuturesRequest,
} from './sampling-api.js';
import { AdapterOutOfReach, BadAnswer, BadRequest, hasNoSuchCall } from './errors.js';
import { NoAnswer, type TinkerHttp } from './http.js';
import type { Sampler } from './sampler.js';

/** What a server was asked; `unknown` if its answer does not say. */
export type Known = 'yes' | 'no' | 'unknown';

/** Calls that servers of the Tinker API may lack. All refuse an empty body, so asking for them changes nothing. */
export const optionalCalls = {
  load_weights: LoadWeightsRequest,
  unload_model: UnloadModelRequest,
  get_info: GetInfoRequest,
  save_weights_external: SaveWeightsExternalRequest,
  copy_weights: CopyWeightsRequest,
  retrieve_futures: RetrieveFuturesRequest,
  cancel_future: CancelFutureRequest,
  join_sampling_session: JoinSamplingSessionRequest,
  create_custom_loss: CreateCustomLossRequest,
} satisfies Record<string, z.ZodType>;
type OptionalCall = keyof typeof optionalCalls;

/** The optional calls that a server has, lacks, and does not say. */
export interface OfferedCalls {
  readonly has: readonly OptionalCall[];
  readonly lacks: readonly OptionalCall[];
  readonly unknown: readonly OptionalCall[];
}

/** Asks for every optional call once, with an empty body. */
export async function probeCalls(http: TinkerHttp, signal: AbortSignal): Promise<OfferedCalls> {
  const names = Object.keys(optionalCalls) as OptionalCall[];
  const answers = await Promise.all(
    names.map(async (operation) => {
      const request = { operation, path: `/api/v1/${operation}`, body: { json: {} }, timeoutMs };
      try {
        return hasCall(await http.send(request, signal));
      } catch (caught) {
        if (!(caught instanceof NoAnswer) && !(caught instanceof BadAnswer)) throw caught;
        return 'unknown';
      }
    }),
  );
  const those = (known: Known) => names.filter((_, i) => answers[i] === known);
  return { has: those('yes'), lacks: those('no'), unknown: those('unknown') };
}

/** The calls in one line: `get_info, load_weights; without copy_weights`. */
export function callsText({ has, lacks, unknown }: OfferedCalls): string {
  return [
    has.join(', ') || 'none',
    ...(lacks.length === 0 ? [] : [`without ${lacks.join(', ')}`]),
    ...(unknown.length === 0 ? [] : [`unknown: ${unknown.join(', ')}`]),
  ].join('; ');
}

/** Whether a server has a call, from its answer to a body that the call refuses. */
function hasCall(answer: Pick<Answer, 'isOk' | 'status' | 'failure'>): Known {
  if (answer.isOk) return 'yes';
  if (hasNoSuchCall(answer.failure)) return 'no';
  // A missing right, or a server or a proxy that is busy, hides the call. A bare 500 is TuFT's answer to unknown ids.
  const isHidden = [401, 402, 403, 408, 429].includes(answer.status) || answer.status > 500;
  return isHidden ? 'unknown' : 'yes';
}

/** The capability by which the local backend spares itself that question, which loads its model for sampling. */
export const promptLogprobs = 'prompt_logprobs';

/** The capability of scoring a prompt with `max_tokens` 0: to sample, it would start a thread that has the model too. */
export const scoresAlone = 'scores_alone';

/**
 * Whether a server gives the logprobs of a prompt, asked by two tokens and one sampled token of the base model.
 *
 * @param limitMs for opening the sampler and for its answer together; a sampler that opens later is not used.
 */
export async function probePromptLogprobs(
  openSampler: () => Promise<Pick<Sampler, 'logprobs'>>,
  signal: AbortSignal,
  limitMs = timeoutMs,
): Promise<{ known: Known; reason?: string }> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(limitMs)]);
  try {
    const sampler = await unlessAborted(markHandled(openSampler()), limit);
    const [, logprob = NaN] = await sampler.logprobs(Int32Array.of(0, 0), { signal: limit });
    return Number.isNaN(logprob) ? { known: 'no', reason: 'it is NaN' } : { known: 'yes' };
  } catch (caught) {
    if (signal.aborted && isAbort(caught, signal)) throw caught;
    const isAnswered = caught instanceof BadRequest || caught instanceof BadAnswer;
    return { known: isAnswered ? 'no' : 'unknown', reason: errorText(caught) };
  }
}

/** How a server hands out adapters; `none`: only it can sample with them. */
export type AdapterKind = 'archive' | 'external weights' | 'none';

/** The first adapter that was asked for: in an archive, or the path of its files, or why there is none. */
export type FirstAdapter =
  | { readonly kind: 'archive' }
  | { readonly kind: 'external weights'; readonly path: string }
  | { readonly kind: 'none'; readonly reasons: readonly string[] };

/**
 * Finds out how a server hands out adapters.
 *
 * @param find gets one from its archive, or finds out whether that would work.
 * @param saveExternal saves it in files to download, where there are no archives.
 */
export async function probeAdapters(
  find: () => Promise<unknown>,
  saveExternal: () => Promise<string>,
): Promise<FirstAdapter> {
  const reasons: string[] = [];
  try {
    await find();
    return { kind: 'archive' };
  } catch (caught) {
    if (!(caught instanceof AdapterOutOfReach)) throw caught;
    reasons.push(errorText(caught));
  }
  try {
    return { kind: 'external weights', path: await saveExternal() };
  } catch (caught) {
    if (!(caught instanceof BadRequest)) throw caught;
    return { kind: 'none', reasons: [...reasons, errorText(caught)] };
  }
}

/** No question may hold up a start. */
const timeoutMs = 10_000;

import { z } from 'zod';
import { join } from 'node:path';
import { replaceFile } from '../../../shared/base/durable-file.js';
import { Score, type ScoredGroup } from '../../../shared/wire/scored-group.js';
import {
  checkModelDirectory,
  embeddedModelPath,
  readModelDirectory,
} from '../../../shared/model/model-directory.js';
import type { RunConfig } from '../../../shared/run/run-config.js';
import { readJson } from '../../../shared/base/read-json.js';
import type { RunFolder } from '../../run-folder.js';

/** A piece of an answer, most often a token. */
const SampledPiece = z.object({
  text: z.string(), // empty for special tokens, such as the end of the answer
  from: z.int(), // index of its first token in the answer
  to: z.int(), // index after its last token
  logprob: z.number(), // nats; of a piece of several tokens their sum
  version: z.int(), // that drew its last token
});
export type SampledPiece = z.infer<typeof SampledPiece>;

const SampledRollout = z.object({
  pieces: z.array(SampledPiece), // of the answer, in order
  omitted: z.int(), // tokens after these
  stopReason: z.enum(['stop', 'length']),
  score: Score,
});
export type SampledRollout = z.infer<typeof SampledRollout>;

/** A readable group of rollouts. */
export const SampledGroup = z.object({
  ticketId: z.string(),
  problemId: z.string(),
  actor: z.string(),
  scoredAt: z.number(), // ms since the epoch
  prompt: z.string(),
  rollouts: z.array(SampledRollout),
});
export type SampledGroup = z.infer<typeof SampledGroup>;

export type Decode = (tokens: ArrayLike<number>) => string;

/** Maximum part of an answer that is shown, so that the page stays small. */
const shownTokens = 512;
const shownRollouts = 16;

export function sampledGroup(
  { group, scores, scoredAt }: ScoredGroup,
  decode: Decode,
): SampledGroup {
  const { ticket, actor, promptTokens, rollouts } = group;
  return {
    ticketId: ticket.ticketId,
    problemId: ticket.problemId,
    actor,
    scoredAt,
    prompt: decode(promptTokens),
    rollouts: rollouts.slice(0, shownRollouts).map((rollout, i) => {
      const { tokens, behaviorLogprobs, versions, stopReason } = rollout;
      const versionOf = versions.flatMap(([version, count]) => Array<number>(count).fill(version));
      const pieces = textPieces(tokens.subarray(0, shownTokens), decode).map((piece) => ({
        ...piece,
        logprob: behaviorLogprobs
          .subarray(piece.from, piece.to)
          .reduce((sum, logprob) => sum + logprob, 0),
        version: versionOf[piece.to - 1]!,
      }));
      const omitted = Math.max(0, tokens.length - shownTokens);
      return { pieces, omitted, stopReason, score: scores[i]! };
    }),
  };
}

/** Neighboring tokens and what they spell together. */
interface TextPiece {
  readonly text: string; // empty for special tokens, such as the end of the answer
  readonly from: number; // index of the first token
  readonly to: number; // index after the last token
}

/** What an unfinished UTF-8 character decodes to. */
const unfinished = '\uFFFD';

/** A character has at most four bytes, so no more tokens than this. */
const longestCharacter = 4;

/**
 * An answer in the smallest pieces that can be read: a token each, but those that spell only a part of
 * a character stay together.
 *
 * @param tokens [T]
 */
function textPieces(
  tokens: ArrayLike<number>,
  decode: (tokens: ArrayLike<number>) => string,
): TextPiece[] {
  const all = Array.from(tokens);
  const pieces: TextPiece[] = [];
  for (let from = 0; from < all.length;) {
    const piece = pieceAt(all, from, decode);
    pieces.push(piece);
    from = piece.to;
  }
  return pieces;
}

function pieceAt(
  tokens: readonly number[],
  from: number,
  decode: (tokens: ArrayLike<number>) => string,
): TextPiece {
  const last = Math.min(tokens.length, from + longestCharacter);
  for (let to = from + 1; to <= last; to++) {
    const text = decode(tokens.slice(from, to));
    if (!text.includes(unfinished)) return { text, from, to };
  }
  return { text: decode([tokens[from]!]), from, to: from + 1 };
}

/** Finds the decoder of a run's tokens; undefined if its model is not on this machine. */
export type FindDecode = (config: RunConfig) => Promise<Decode | undefined>;

/**
 * Decodes a run's tokens by the tokenizer in `modelDir`, or by that of the embedded model if the run trains it.
 * A given directory is checked without reading its weights.
 *
 * @throws {UserError} at once, if the given directory cannot be read.
 */
export async function findDecodeIn(modelDir: string | undefined): Promise<FindDecode> {
  const given = modelDir === undefined ? undefined : await checkModelDirectory(modelDir);
  return async ({ model }) => {
    const folder = given ?? (await readModelDirectory(embeddedModelPath));
    if ('digest' in folder && folder.digest !== model.digest) return undefined;
    // Imported only when needed: its library is large, and every offbeat command would load it.
    const { loadTokenizer } = await import('../../../shared/model/tokenizer.js');
    return (await loadTokenizer(folder)).decode;
  };
}

const fileIn = ({ path }: Pick<RunFolder, 'path'>) => join(path, 'rollouts.json');

/** Keeps the newest rollouts of a run beside its history: its queues are empty when it is over. */
export async function writeSamples(
  folder: Pick<RunFolder, 'path'>,
  samples: readonly SampledGroup[],
): Promise<void> {
  await replaceFile(fileIn(folder), `${JSON.stringify(samples)}\n`);
}

/** The rollouts that a run has kept; none where there is no file, or one of another release. */
export async function readSamples(folder: Pick<RunFolder, 'path'>): Promise<SampledGroup[]> {
  try {
    return z.array(SampledGroup).parse(await readJson(fileIn(folder)));
  } catch {
    return [];
  }
}

/** Neighbouring tokens and what they spell together. */
export interface TextPiece {
  readonly text: string; // empty for special tokens, such as the end of the answer
  readonly from: number; // of the tokens, the first
  readonly to: number; // and the one behind the last
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
export function textPieces(
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

import { pythonValue, PythonError, type PythonNumber } from './python-arithmetic.js';

/** The outcome of TuFT's rules for a completion: a reward, an exception, or endless work. */
export type TuftOutcome = number | 'crash' | 'endless';

/**
 * TuFT's published Countdown reward, rewritten from its description for comparison with ours. Only
 * the text after the first `Assistant:` is read; in the last `<answer>…</answer>` there must be
 * exactly the numbers as digits, nothing but digits, `+-*` `/().` and blanks, and a Python
 * expression within 1e-5 of the target.
 *
 * Source: TuFT v0.2.0, Countdown guide §3.2, and `examples/countdown_rl`, as described by its users.
 */
export function tuftReward(
  text: string,
  target: number,
  numbers: readonly number[],
  formatScore: number,
  usesContinuousShaping: boolean,
): TuftOutcome {
  const read = afterSpeaker(text);
  if (isEndlessSearch(read)) return 'endless';
  const equation = lastAnswer(read);
  if (equation === undefined) return 0;
  const found = (equation.match(/\d+/g) ?? []).map(Number).sort((a, b) => a - b);
  const given = numbers.toSorted((a, b) => a - b);
  if (found.length !== given.length || found.some((n, i) => n !== given[i])) return formatScore;
  // Characters beyond ASCII may pass Python's \d and \s, but then its parser refuses them.
  // oxlint-disable-next-line no-control-regex -- Python counts these as spaces
  if (!/^[\d+\-*/().\t-\r\x1c-\x20]+$/.test(equation)) return formatScore;

  let value: PythonNumber;
  try {
    value = pythonValue(equation);
  } catch (caught) {
    if (!(caught instanceof PythonError)) throw caught;
    return caught.isEndless ? 'endless' : formatScore;
  }
  // `abs(value - target)` and the following code are outside the try block.
  const difference = typeof value === 'bigint' ? value - BigInt(target) : value - target;
  const error = Math.abs(Number(difference));
  if (error < 1e-5) return 1;
  if (!usesContinuousShaping) return formatScore;
  if (typeof value === 'bigint' && error === Infinity) return 'crash'; // int too large for a float
  return formatScore + (1 - formatScore) / (1 + error);
}

function afterSpeaker(text: string): string {
  for (const speaker of ['Assistant:', '<|im_start|>assistant']) {
    const at = text.indexOf(speaker);
    if (at !== -1) return text.slice(at + speaker.length);
  }
  return text;
}

/** Each opening tag after the last block is tried, and reads to the end of the text without a match. */
function isEndlessSearch(text: string): boolean {
  return text.slice(text.lastIndexOf('</answer>') + 1).split('<answer>').length > 10_000;
}

/** Non-greedy and from the left: an opening tag inside a block belongs to the block's text. */
function lastAnswer(text: string): string | undefined {
  const last = [...text.matchAll(/<answer>([^]*?)<\/answer>/g)].at(-1)?.[1];
  return last === undefined ? undefined : stripped(last);
}

/** As Python strips: with the separators 0x1c to 0x1f, without the byte order mark. */
function stripped(text: string): string {
  const blank =
    '[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+';
  return text.replace(new RegExp(`^${blank}`), '').replace(new RegExp(`${blank}$`), '');
}

import { existsSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { quoted } from '../../shared/service/npm-flags.js';
import { UserError } from '../../shared/base/errors.js';
import { makeOutputFolder } from '../../shared/base/make-folder.js';
import { describeFlags } from '../../shared/service/config-help.js';
import type { Environment } from '../../shared/service/config.js';
import { findingText } from '../doctor/finding.js';
import { modelFindings } from '../doctor/model.js';
import { lockFolder } from '../../shared/service/folder-lock.js';
import { checkFiles, readOrigin, sourceText, type Origin } from './origin.js';
import { loadModelRequest, ModelConfig, modelService, type ModelRequest } from './request.js';
import { compareWith, take } from './sources.js';

export function modelHelp(): string {
  return `offbeat model get NAME|PATH: a language model as a directory for --model-dir.

  OWNER/NAME     a model of the Hugging Face hub, as safetensors. HF_TOKEN is used for models that are not for all.
                 An interrupted download is continued by the same command, with the same commit.
  DIRECTORY      a copy of the files that make the model
  FILE.gguf      the model of a GGUF file (F32, F16, BF16, Q8_0, Q4_1 or Q4_0), unpacked

The model must be a dense one of the Qwen3, Qwen2 or Llama family; another is refused before its weights are taken.
The directory has its origin and license in origin.json. At the end it is checked as offbeat doctor does.
Exit code: 0 if training can begin with it, 1 if it cannot.

${describeFlags(ModelConfig.shape, modelService)}
`;
}

/**
 * Gets a model, unless it is here, and checks it.
 *
 * @returns the exit code.
 * @throws {UserError} if it cannot be had, with the remedy.
 */
export async function model(words: readonly string[], env: Environment): Promise<number> {
  const { wanted, out } = await loadModelRequest(words, env);
  const finished = await finishedOrigin(wanted, out);
  const origin = finished ?? (await getInto(wanted, out));
  const license = origin.license?.name ?? origin.license?.id ?? 'unknown; see its page';
  process.stdout.write(
    `${out} ${finished === undefined ? 'is' : 'is already'} ${sourceText(origin.source)}\n` +
      `license: ${license}\n${formatsText(origin)}`,
  );
  const findings = await modelFindings(out);
  process.stdout.write(findings.map(findingText).join(''));
  const isGood = findings.every(({ level }) => level !== 'error');
  if (isGood) process.stdout.write(nextText(out));
  return isGood ? 0 : 1;
}

/** The origin of a directory that is complete. @throws {UserError} if it holds something else. */
async function finishedOrigin(
  wanted: ModelRequest['wanted'],
  out: string,
): Promise<Origin | undefined> {
  const origin = await readOrigin(out);
  if (origin === undefined) return undefined;
  await checkFiles(out, origin);
  const found = await compareWith(wanted, out, origin);
  if (found !== 'same') {
    const since = found === 'changed' ? ', which has changed since' : '';
    throw new UserError(
      `${out} is ${sourceText(origin.source)}${since}; name another --out, or delete it first`,
    );
  }
  return origin;
}

/** The directory appears under its name when it is complete. */
async function getInto(wanted: ModelRequest['wanted'], out: string): Promise<Origin> {
  const partial = `${out}.partial`;
  await makeOutputFolder(partial, '--out');
  using _lock = await lockFolder(partial, 'offbeat model get');
  const origin = await take(wanted, partial);
  await rename(partial, out);
  await rm(join(out, '.lock'), { force: true });
  return origin;
}

function formatsText({ formats }: Origin): string {
  const quantized = Object.keys(formats ?? {}).filter((name) => name.startsWith('Q'));
  return quantized.length === 0
    ? ''
    : `its weights were quantized (${quantized.join(', ')}): they differ from the published ones by that error\n`;
}

/** The commands of docs/real-models.md for this model: problems and answers are small enough for a trial on a CPU. */
function nextText(out: string): string {
  const ofModel = `--model-dir ${quoted(out)} --prompt-style`;
  const task = `${ofModel} compact --numbers 3 --max-number 30 --max-target 100 --max-tokens 24`;
  const ends = '--eval-problems 32 --eval-samples 1 --actors 1 --max-steps';
  const steps =
    '--group-size 8 --groups-per-batch 8 --num-minibatches 2 --learning-rate 3e-5 --warmup-steps 5';
  const chat = existsSync(join(out, 'chat_template.jinja'))
    ? `or, if it solves problems by itself, by its chat template:\n  npx offbeat up ${ofModel} think --max-tokens 400\n`
    : '';
  return (
    `\nnext, on solutions of the task, and from these weights by reinforcement learning:\n` +
    `  npx offbeat sft --run warm ${task} --batch-examples 32 ${ends} 64\n` +
    `  npx offbeat up --run rl --from warm ${task} ${steps} ${ends} 30\n${chat}`
  );
}

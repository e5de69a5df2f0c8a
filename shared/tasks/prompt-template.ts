import { z } from 'zod';
import { errorText, UserError } from '../base/errors.js';
import { plainWords } from '../base/plain-words.js';
import { readJson } from '../base/read-json.js';
import { AnswerPlace, answersIn, endsInOpenTag, type AnswerForm } from './answer-place.js';
import type { Prompt } from './prompt.js';

const text = z.string().min(1);

/**
 * The prompt of a task and the place of the answer, as data in the run's configuration, so that all
 * services use the same one. `{{name}}` stands for a part of the problem.
 */
export const PromptTemplate = z
  .strictObject({
    name: text.max(64),
    text: text.optional(), // plain text, or
    chat: z // formatted by the chat template of the model's tokenizer
      .array(z.strictObject({ role: z.enum(['system', 'user', 'assistant']), content: z.string() }))
      .min(1)
      .max(1_000)
      .optional(),
    opening: z.string().default(''), // of a chat: the beginning of the assistant's answer
    answer: AnswerPlace,
    stop: z.array(text.max(128)).max(100).default([]), // texts that end sampling, besides the end of the sequence; each is searched for in every answer
  })
  .check(({ value, issues }) => {
    const complain = (path: string, message: string) =>
      issues.push({ code: 'custom', input: value, path: [path], message });
    if ((value.text === undefined) === (value.chat === undefined)) {
      complain('text', 'give either text or chat');
    } else if (value.text !== undefined && value.opening !== '') {
      complain('opening', 'only a chat has one; make it the end of text');
    }
  });
export type PromptTemplate = z.infer<typeof PromptTemplate>;

/** The prompt of a problem whose parts are `values`. */
export function fillTemplate(
  template: TemplateText,
  values: Readonly<Record<string, string>>,
): Prompt {
  const fill = (part: string) =>
    part.replace(placeholder, (whole, name: string) => values[name] ?? whole);
  if (template.text !== undefined) return { text: fill(template.text) };
  const chat = (template.chat ?? []).map(({ role, content }) => ({ role, content: fill(content) }));
  return { chat, opening: fill(template.opening) };
}

/**
 * The reverse of `fillTemplate`.
 *
 * @param patterns of each part's values, as a regular expression.
 * @returns the parts that a plain text or a message shows, or undefined if the template does not write it so. A template
 *   with parts in several of its messages reads none: one message does not ask the whole question.
 */
export function templateReader(
  template: TemplateText,
  patterns: Readonly<Record<string, string>>,
): (text: string) => Readonly<Record<string, string>> | undefined {
  const texts = [template.text ?? '', ...(template.chat ?? []).map(({ content }) => content)];
  const asking = texts.map((text) => text.trim()).filter((text) => text.search(placeholder) !== -1);
  if (asking.length !== 1) return () => undefined;
  const seen = new Set<string>();
  const pattern = asking[0]!.split(placeholder).map((part, i) => {
    if (i % 2 === 0) return part.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
    if (seen.has(part)) return `\\k<${part}>`;
    seen.add(part);
    return `(?<${part}>${patterns[part]!})`;
  });
  const form = new RegExp(`^${pattern.join('')}$`);
  return (text) => form.exec(text.trim())?.groups;
}

/** All texts of a template, one per line. */
export function shownText({ text: plain, chat = [], opening }: TemplateText): string {
  return [plain ?? '', ...chat.map(({ content }) => content), opening].join('\n');
}

/** Where the completions of a template's prompts have their answer. */
export function answerFormOf(template: PromptTemplate): AnswerForm {
  const { answer, stop } = template;
  const examples = answersIn(answer, shownText(template));
  return { answer, examples, isBegun: beginsAnswer(template), stop };
}

/** Whether the prompt ends in the opening tag of the answer. Only the assistant's part of a chat can. */
export function beginsAnswer({
  answer,
  text: plain,
  opening,
}: Pick<PromptTemplate, 'text' | 'opening' | 'answer'>): boolean {
  return endsInOpenTag(answer, plain ?? opening);
}

type TemplateText = Pick<PromptTemplate, 'text' | 'chat' | 'opening'>;

/** A rule for a task's templates: they use only `parts`, and at least one. */
export function namesOnly(parts: readonly string[]) {
  return ({ value, issues }: z.core.ParsePayload<PromptTemplate>): void => {
    const used = [...shownText(value).matchAll(placeholder)].map(([, name]) => name!);
    const known = parts.map((part) => `{{${part}}}`).join(', ');
    const unknown = used.find((name) => !parts.includes(name));
    const complain = (message: string) =>
      issues.push({ code: 'custom', input: value, path: ['text'], message });
    if (unknown !== undefined) complain(`no problem has {{${unknown}}}; there are ${known}`);
    else if (used.length === 0) complain(`every problem would look the same; use ${known}`);
  };
}

const placeholder = /\{\{\s*([A-Za-z_]+)\s*\}\}/g;

/** The styles of a task by name, each in the available languages. */
export type Styles<Template> = Readonly<
  Record<string, Readonly<Partial<Record<PromptLanguage, Template>> & { en: Template }>>
>;

export const promptLanguages = ['en', 'zh'] as const;
type PromptLanguage = (typeof promptLanguages)[number];

/**
 * The template that `--prompt-style` names: one of the task's own, or the user's file.
 *
 * @throws {UserError} listing the available styles, or each wrong key of the file.
 */
export async function chooseTemplate<Schema extends z.ZodType>(
  schema: Schema,
  styles: Styles<z.input<Schema>>,
  choice: string,
  language: PromptLanguage,
): Promise<z.output<Schema>> {
  const own = Object.hasOwn(styles, choice) ? styles[choice] : undefined;
  // A style without words in a language is the same in all: a run with it goes on as it began.
  if (own !== undefined) return schema.parse(own[language] ?? own.en);
  if (!choice.endsWith('.json')) {
    throw new UserError(
      `--prompt-style ${choice} is none of ${Object.keys(styles).join(', ')}, nor a file *.json of your own`,
    );
  }
  const json = await readJson(choice).catch((cause: unknown) => {
    const remedy = 'give a JSON file';
    throw new UserError(
      `cannot read the prompt template ${choice} (${errorText(cause)}); ${remedy}`,
      { cause },
    );
  });
  const parsed = schema.safeParse(json, { error: plainWords });
  if (parsed.success) return parsed.data;
  const complaints = parsed.error.issues.map(
    ({ path, message }) => `  - ${path.map(String).join('.') || 'the file'}: ${message}`,
  );
  throw new UserError(`${choice} is no prompt template:\n${complaints.join('\n')}`);
}

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errorText, UserError } from '../base/errors.js';
import { withoutMark } from '../base/read-json.js';

/** The part of tokenizer_config.json where transformers kept the template before version 5: one, or several with names. */
const WithTemplate = z.looseObject({
  chat_template: z.union([z.string(), z.array(z.unknown())]).nullish(),
});

/**
 * The file where transformers keeps the chat template since version 5; undefined if there is none.
 *
 * @throws {UserError} naming the file, if it is there and cannot be read.
 */
export async function readTemplateFile(path: string): Promise<string | undefined> {
  return await readIfThere(join(path, 'chat_template.jinja'));
}

/**
 * What makes prompts of conversations in a model directory, as text; undefined if nothing does. The file of its own counts
 * before the template in tokenizer_config.json, as in transformers.
 *
 * @throws {UserError} naming a file that is there and cannot be read.
 */
export async function readChatTemplate(path: string): Promise<string | undefined> {
  const own = await readTemplateFile(path);
  if (own !== undefined) return own;
  const file = join(path, 'tokenizer_config.json');
  const text = await readIfThere(file);
  if (text === undefined) return undefined;
  try {
    const { chat_template: template } = WithTemplate.parse(JSON.parse(withoutMark(text)));
    if (template === undefined || template === null) return undefined;
    return typeof template === 'string' ? template : JSON.stringify(template);
  } catch (cause) {
    throw new UserError(`${file} is not usable (${errorText(cause)}); download it again`, {
      cause,
    });
  }
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new UserError(
      `cannot read ${file} (${errorText(cause)}); make it readable, or remove it`,
      {
        cause,
      },
    );
  }
}

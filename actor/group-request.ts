import { PermanentError } from '../shared/base/errors.js';
import type { Tokenizer } from '../shared/model/tokenizer.js';
import type { Dataset } from '../shared/tasks/dataset.js';
import { promptTokens } from '../shared/tasks/prompt.js';
import type { Task } from '../shared/tasks/task.js';
import type { Ticket } from '../shared/wire/ticket.js';
import type { GroupRequest } from './sampler/sampler.js';

/** What turns a ticket into a prompt. The ticket names the problem; it is looked up here. */
export interface PromptSource {
  readonly dataset: Pick<Dataset, 'problem'>;
  readonly task: Pick<Task, 'prompt' | 'stop'>;
  readonly tokenizer: Pick<Tokenizer, 'encode' | 'chatText' | 'eosTokenIds'>;
  readonly maxContext: number | undefined; // tokens of prompt and answer together
}

/**
 * What to sample for a ticket.
 *
 * @throws {PermanentError} if the problem is unknown here, or its prompt leaves the model no room.
 */
export function groupRequest(ticket: Ticket, source: PromptSource): GroupRequest {
  const problem = source.dataset.problem(ticket.problemId);
  if (problem === undefined) {
    throw new PermanentError(
      `ticket ${ticket.ticketId} asks for problem ${ticket.problemId}, which the run's dataset does not have`,
    );
  }
  const prompt = promptTokens(source.task.prompt(problem), source.tokenizer);
  const { temperature, maxTokens, seed } = ticket.samplingParams;
  const needed = prompt.length + maxTokens;
  if (source.maxContext !== undefined && needed > source.maxContext) {
    throw new PermanentError(
      `ticket ${ticket.ticketId} needs ${needed} tokens (prompt ${prompt.length}, answer ${maxTokens}), but the model has room for ${source.maxContext}; lower the run's max tokens`,
    );
  }
  return {
    prompt,
    count: ticket.groupSize,
    temperature,
    maxTokens,
    stopTokenIds: source.tokenizer.eosTokenIds,
    stopStrings: source.task.stop,
    seed,
  };
}

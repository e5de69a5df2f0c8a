import { isAbsolute } from 'node:path';
import { z } from 'zod';
import { type AddIssue, string } from '../../shared/service/config-fields.js';

/** How the adapters of policy versions reach the actors that sample by themselves. */
export const Adapters = z.object({
  adapterStore: string
    .refine((text) => text === 'nats' || text === 'link' || isAbsolute(text), {
      error: 'expected nats, link or an absolute folder',
    })
    .default('nats')
    .describe(
      "where adapters go: nats, the run's object store; link, nowhere, because actors get the backend's own signed links; " +
        'or a folder that the actors have under the same path. Actors need --adapter-sources for the last two.',
    ),
  adapterDtype: z
    .enum(['fp32', 'bf16'])
    .default('fp32')
    .describe(
      'numbers of published adapters: fp32, as the backend hands them out, or bf16, rounded to half the bytes.',
    ),
  publishAdapters: z
    .enum(['auto', 'asked'])
    .default('auto')
    .describe(
      'auto: with every version, unless all known actors sample at the backend; asked: only once an actor needs ' +
        'one, within seconds.',
    ),
});
export type Adapters = z.infer<typeof Adapters>;

export function checkAdapters(
  { adapterStore, adapterDtype }: Adapters,
  addIssue: AddIssue<Adapters>,
): void {
  if (adapterStore === 'link' && adapterDtype === 'bf16') {
    addIssue(
      'adapterDtype',
      "a link leads to the backend's own file, which cannot be rounded; choose --adapter-store nats or a folder",
    );
  }
}

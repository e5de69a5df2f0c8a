import { z } from 'zod';
import { arithmetics } from '../base/arithmetic.js';
import { sha256 } from '../base/bytes.js';
import { Float32Block, Int32Block } from './codec.js';

/** A token of a text: it is predicted from the text's tokens before it. */
const Place = z.tuple([
  z.int().nonnegative(), // index of the text
  z.int().positive(), // index of the token in it
]);

/**
 * The logprobs that the trainer's weights of one version give to a few tokens of fixed texts. A sampler that has
 * loaded other weights, or uses them wrongly, gives others.
 */
export const Canary = z
  .strictObject({
    temperature: z.number().positive(), // that of sampling; divides the logits
    arithmetic: z.enum(arithmetics), // in which the trainer has computed it
    texts: z.array(Int32Block).min(1).max(64), // each [T]
    places: z.array(Place).min(1).max(1_024), // [n]
    logprobs: Float32Block, // [n], natural log
    // What the version before and the first one give the same tokens; as far as the learner's session knows them.
    earlier: z
      .array(z.strictObject({ version: z.int().nonnegative(), logprobs: Float32Block }))
      .max(2)
      .optional(),
  })
  .check(({ value: { texts, places, logprobs, earlier = [] }, value, issues }) => {
    const complain = (path: (string | number)[], message: string) =>
      issues.push({ code: 'custom', input: value, path, message });
    const all = [
      { path: ['logprobs'], logprobs },
      ...earlier.map((one, i) => ({ path: ['earlier', i, 'logprobs'], ...one })),
    ];
    for (const { path, logprobs: some } of all) {
      if (some.length !== places.length) {
        complain(path, `expected one logprob for each of ${places.length} places`);
      }
      if (!some.every((logprob) => Number.isFinite(logprob) && logprob <= 0)) {
        complain(path, 'a logprob is finite and at most 0');
      }
    }
    const outside = places.findIndex(([text, index]) => index >= (texts[text]?.length ?? 0));
    if (outside !== -1) complain(['places', outside], 'expected the place of a token in a text');
  });
export type Canary = z.output<typeof Canary>;

/**
 * Identifies what a sampler has reproduced: a version and all parts of its canary.
 *
 * @returns SHA-256 in hexadecimal.
 */
export function canaryDigest(version: number, canary: Canary): string {
  const { temperature, arithmetic, texts, places, logprobs, earlier = [] } = canary;
  const ids = texts.map((text) => [...text]);
  const others = earlier.map((one) => [one.version, [...one.logprobs]]);
  const parts = [version, temperature, arithmetic, ids, places, [...logprobs], others];
  return sha256(JSON.stringify(parts));
}

const Digest = z.string().regex(/^[0-9a-f]{64}$/);

/** What an actor says of the sampler that drew a group, and the canaries that it had reproduced before. */
export const Certificate = z.strictObject({
  canaries: z.array(z.tuple([z.int().nonnegative(), Digest])).max(4_096), // by version
  engine: z.string().min(1).max(256), // the sampler's kind and release, or the model that it serves
  arithmetic: z.enum(arithmetics), // the sampler's
});
export type Certificate = z.infer<typeof Certificate>;

/** The engine of our own sampler, in certificates; its release follows. */
export const onnxEngine = 'onnxruntime-node';

/** Whether a group's actor says that its sampler draws by the random numbers of the ticket (`tokenDraws`). */
export function drawsByTicket(certificate: Certificate | undefined): boolean {
  return certificate?.engine.startsWith(onnxEngine) ?? false;
}

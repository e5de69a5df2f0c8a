/** Classes of arithmetic, from the finest to the coarsest: how far two computations of one logprob may differ depends on the coarser. */
export const arithmetics = ['fp32', 'bf16', 'fp8'] as const;
export type Arithmetic = (typeof arithmetics)[number];

/** The coarser of two classes. */
export function coarser(a: Arithmetic, b: Arithmetic): Arithmetic {
  return arithmetics.indexOf(a) > arithmetics.indexOf(b) ? a : b;
}

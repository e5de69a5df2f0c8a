import { z } from 'zod';
import { median } from '../../../shared/base/statistics.js';
import { PythonPeer } from './python-peer.js';

/** What one thread can do at most in float32, by torch: operations and bytes in a second of its processor. */
export interface MachineRates {
  readonly products: number; // FLOP/s in matrix products of 1,024 × 1,024
  readonly reads: number; // bytes/s of a matrix that no cache holds
}

const Measured = z.object({ count: z.number(), processor: z.number().positive() });
const Answer = z.object({ products: Measured, reads: Measured });

/** @param rounds of which the medians are taken, because other processes take memory bandwidth and clock rate away. */
export async function measureMachine(python: string, rounds: number): Promise<MachineRates> {
  await using peer = await PythonPeer.start(python, 'machine.py', [], { threads: 1 });
  const [products, reads]: [number[], number[]] = [[], []];
  for (let i = 0; i < rounds; i++) {
    const answer = Answer.parse(await peer.answer());
    products.push(answer.products.count / answer.products.processor);
    reads.push(answer.reads.count / answer.reads.processor);
  }
  return { products: median(products), reads: median(reads) };
}

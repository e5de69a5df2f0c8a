import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { bytesOf, type OperationResult } from '../../local-backend/operation-result.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

async function liveBytes(): Promise<number> {
  for (let round = 0; round < 3; round++) {
    collect();
    await turn(); // what finalizers release is collected in the next round
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

describe('the size of a result', () => {
  it('the size of a result is about the memory that it takes, for many short samples and for few long ones', async () => {
    for (const [samples, length] of [
      [20_000, 1],
      [50, 50_000],
    ] as const) {
      const before = await liveBytes();
      const result: OperationResult = {
        kind: 'sample',
        result: {
          sequences: Array.from({ length: samples }, () => ({
            tokens: new Int32Array(length),
            logprobs: new Float32Array(length),
            stopReason: 'stop',
          })),
        },
      };
      const taken = (await liveBytes()) - before;
      const counted = bytesOf(result);
      assert(counted > taken / 2 && counted < 2 * taken, `${counted} counted, ${taken} taken`);
    }
  });
});

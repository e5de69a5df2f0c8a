import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createRandom } from '../../shared/random.js';
import { processesWith } from '../support/processes.js';
import { chaos } from './chaos.js';
import { nameOf, plan } from './mishaps.js';

describe('a run in which things go wrong, in short', { timeout: 400_000 }, () => {
  it('loses nothing, trains nothing twice, and comes to the same weights', async () => {
    const lines: string[] = [];
    const report = (line: string) => void lines.push(line);
    const seed = 1255; // begins with kills of the learner, the backend and nats-server
    // As much as fits: each mishap waits until training has gone on, however slow the machine.
    const result = await chaos({ seed, maxSeconds: 20, stillMs: 150_000, report });
    assert.deepEqual(result.violations, [], lines.join('\n'));
    assert(Object.keys(result.mishaps).length > 0 && result.trained >= 2 * result.steps);
    assert.deepEqual(processesWith(`--run=chaos-${seed}`), []);
  });
});

describe('the plan of what goes wrong', () => {
  it('is the same for the same seed, and has every mishap', () => {
    const names = (seed: number) => plan(createRandom(seed)).map((mishap) => nameOf(mishap));
    assert.deepEqual(names(7), names(7));
    assert.notDeepEqual(names(7), names(8));
    const once = names(7);
    for (const victim of ['actor', 'reward', 'learner', 'standby', 'backend', 'nats-server']) {
      for (const how of ['SIGKILL', 'SIGTERM', 'SIGSTOP'])
        assert(once.includes(`${how} ${victim}`));
    }
    assert.deepEqual(names(8).toSorted(), once.toSorted());
  });
});

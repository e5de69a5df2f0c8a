import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { processesWith } from '../support/processes.js';
import { chaos } from './chaos.js';
import { everyName, namesOf, sceneOf } from './rounds.js';

describe('a run in which things go wrong, in short', { timeout: 400_000 }, () => {
  it('a run under faults loses nothing, trains nothing twice and reaches the same weights', async () => {
    const lines: string[] = [];
    const report = (line: string) => void lines.push(line);
    // Starts with kills of the learner, the backend, nats-server and an actor; with substeps, minibatches,
    // evaluations and keys.
    const seed = 45_230;
    // As many mishaps as fit: each waits until training has continued, on a machine of any speed.
    const result = await chaos('processes', { seed, maxSeconds: 20, stillMs: 150_000, report });
    assert.deepEqual(result.violations, [], lines.join('\n'));
    assert(Object.keys(result.mishaps).length > 0 && result.trained >= 2 * result.steps);
    assert.deepEqual(processesWith(`--run=chaos-${seed}`), []);
  });
});

describe('the plan of what goes wrong', () => {
  it('the plan of mishaps depends only on the seed', () => {
    const [seed, later] = [6, 9]; // both of one scene
    assert.equal(sceneOf(seed), sceneOf(later));
    assert.deepEqual(namesOf(seed), namesOf(seed));
    assert.notDeepEqual(namesOf(seed), namesOf(later));
    assert.deepEqual(namesOf(later).toSorted(), namesOf(seed).toSorted());
  });

  it('three consecutive seeds have every mishap', () => {
    for (const seed of [3, 4, 5]) {
      const together = [0, 1, 2].flatMap((more) => namesOf(seed + more));
      assert.deepEqual([...new Set(together)].sort(), everyName());
    }
    for (const victim of ['actor', 'reward', 'learner', 'standby', 'backend', 'nats-server']) {
      for (const how of ['SIGKILL', 'SIGTERM', 'SIGSTOP']) {
        assert(everyName().includes(`${how} ${victim}`));
      }
    }
  });
});

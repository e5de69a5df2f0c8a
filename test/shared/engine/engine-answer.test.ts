import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PermanentError } from '../../../shared/base/errors.js';
import { NotServed } from '../../../shared/engine/adapter-server.js';
import { refusalError } from '../../../shared/engine/engine-answer.js';
import { EngineDown, EngineRefusal } from '../../../shared/engine/engine-http.js';

describe('a refusal of a request to sample', () => {
  const errorOf = (status: number) =>
    refusalError(new EngineRefusal(`answered with ${status}`, status, 'a reason'));

  it('a request that the engine finds wrong ends its ticket', () => {
    for (const status of [400, 413, 422]) {
      assert(errorOf(status) instanceof PermanentError, String(status));
    }
  });

  it('a refusal that is no answer of an engine, such as that of a proxy, ends no ticket', () => {
    for (const status of [302, 403, 404, 405]) {
      assert(errorOf(status) instanceof EngineDown, String(status));
    }
    for (const status of [408, 429]) assert(errorOf(status) instanceof NotServed, String(status));
  });
});

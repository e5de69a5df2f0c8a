import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { matchPath } from '../../local-backend/http-api.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { routes } from '../local-backend/routes.js';
import { codeIn, tableUnder } from './metrics-table.js';
import { updatedServers } from './servers-table.js';

const read = (path: string) => readFileSync(join(packageRoot, path), 'utf8');

/** The routes that answer a call, such as `GET sessions/:id`. */
function answering(call: string) {
  const [method, path = ''] = call.split(' ');
  const url = `/api/v1/${path.replace('checkpoints/:id', 'checkpoints/weights/x')}`;
  return routes.filter((one) => one.method === method && matchPath(one.path, url) !== undefined);
}

describe('the table of Tinker calls', () => {
  const rows = tableUnder(read('docs/backends.md'), '## Calls of the Tinker API').map(
    ([call, state]) => ({ call: codeIn(call!)[0]!, state: state! }),
  );
  const inState = (wanted: string) =>
    rows.filter(({ state }) => state === wanted).map(({ call }) => call);

  it('the table of Tinker calls has every call of the SDKs once', () => {
    const { routes: calls } = JSON.parse(read('test/compat/sdk/known-protocol.json')) as {
      routes: string[];
    };
    const listed = rows.map(({ call }) => call);
    assert.deepEqual(
      calls.filter((call) => !listed.includes(call)),
      [],
    );
    assert.equal(new Set(listed).size, listed.length);
    assert.equal(inState('served').length + inState('refused').length, rows.length);
  });

  it('the calls listed as served are those that the local backend serves', () => {
    const served = inState('served');
    assert.deepEqual(
      served.filter((call) => answering(call).length === 0),
      [],
    );
    const reached = new Set(served.flatMap(answering));
    assert.deepEqual(
      routes.filter((route) => !reached.has(route)),
      [],
    );
  });

  it('the calls listed as refused have no route', () => {
    assert.deepEqual(
      inState('refused').filter((call) => answering(call).length > 0),
      [],
    );
  });
});

describe('the table of other servers', () => {
  it('the table of other servers is what the suite `servers` must find, by the contracts', () => {
    const page = read('docs/backends.md');
    assert.equal(updatedServers(page), page, 'npm run docs writes it');
  });
});

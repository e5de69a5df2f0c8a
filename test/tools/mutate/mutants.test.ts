import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, it } from 'node:test';
import { packageRoot } from '../../../shared/base/package-root.js';
import { mutantsOf } from '../../../tools/mutate/mutants.js';
import { nearestTests } from '../../../tools/mutate/nearest-tests.js';

const shown = (source: string) =>
  mutantsOf(source).map(({ line, before, after }) => `${line}: ${before} → ${after}`);

describe('the mutants of a source', () => {
  it('boundaries, arithmetic, logic, numbers and constants have other ones', () => {
    assert.deepEqual(shown('const a = b < 1 && !c;'), [
      '1: && → ||',
      '1: < → <=',
      '1: 1 → (1 + 1)',
      '1: !c → c',
    ]);
    assert.deepEqual(shown('f(a + b, a / b, Math.min(a, true));'), [
      '1: f(a + b, a / b, Math.min(a, true)); → ;',
      '1: + → -',
      '1: / → *',
      '1: min → max',
      '1: true → false',
    ]);
    assert.deepEqual(shown('const c = { 1: 2 };'), ['1: 2 → (2 + 1)']);
  });

  it('a condition is always and never true, a filter keeps everything, and a statement is removed', () => {
    const source =
      'for (const x of y.filter(z)) {\n  if (x) continue;\n  throw new Error(`${1 + 1}`);\n}';
    assert.deepEqual(shown(source), [
      '1: y.filter(z) → y',
      '2: x → true',
      '2: x → false',
      '2: continue; → ;',
      '3: throw new Error(`${1 + 1}`); → ;',
    ]);
    const [first] = mutantsOf(source);
    assert.deepEqual([first!.line, first!.column], [1, 17]);
    assert.equal(first!.source, source.replace('y.filter(z)', 'y'));
  });

  it('texts, types, log lines and the declarations of metrics have none', () => {
    const source = [
      "import { a } from './a1.js';",
      'type B = 1 | true;',
      "const text = 'a' + b;",
      'log.warn({ n: 1 }, `${1 + 2}`);',
      'const metric = new Histogram({ buckets: [0, 1] });',
    ];
    assert.deepEqual(shown(source.join('\n')), []);
  });
});

describe('the tests of a mutant', () => {
  it('the tests of a mutant are those that load its file, the nearest first, and no slow ones', async () => {
    const testsOf = await nearestTests(100);
    const tests = testsOf('shared/rl/window.ts');
    assert.equal(tests[0], 'test/shared/rl/window.test.ts');
    assert(tests.length > 5);
    assert(tests.every((test) => !test.startsWith('test/integration/')));
    assert.equal((await nearestTests(2))('shared/rl/window.ts').length, 2);
  });
});

describe('npm run mutate', () => {
  const run = (...words: string[]) =>
    spawnSync(process.execPath, ['dist/tools/mutate/main.js', ...words], {
      ...{ cwd: packageRoot, encoding: 'utf8', timeout: 60_000 },
    });

  it('each wrong argument is named with its value before anything is tried', () => {
    const { status, stderr } = run('shared/rl', 'shared/lr', '--count=0', '--tests=few');
    assert.equal(status, 2);
    assert.deepEqual(stderr.trimEnd().split('\n'), [
      'there is no folder shared/lr in this checkout; name one, such as shared/rl',
      '--count is 0; give a whole number of at least 1',
      '--tests is few; give a whole number of at least 1',
    ]);
    assert.match(run().stderr, /^no folder is given; name one, such as shared\/rl$/m);
    assert.match(run('docs').stderr, /^nothing in docs has a fault to try/m);
  });
});

import { testSdk } from './sdk.js';
import { runPython, type Suite } from './suite.js';

/**
 * What `npm run test:compat` runs, in this order. A new suite is one entry: its name, what it
 * proves, and what runs it. Programs in Python report their checks as lines of JSON (runPython).
 */
export const suites: readonly Suite[] = [
  {
    name: 'environment',
    proves: 'the pinned versions are the ones that the other suites import',
    run: (context) => runPython(context, 'environment.py'),
  },
  {
    name: 'sdk',
    proves: 'the Python SDK works against the local backend, with the numbers of transformers',
    run: testSdk,
  },
  {
    name: 'transformers',
    proves: 'the golden files that npm test compares with are what transformers and peft give',
    run: (context) => runPython(context, 'golden/make.py', ['--check']),
  },
];

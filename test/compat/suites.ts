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
];

import { readdirSync } from 'node:fs';
import tseslint from 'typescript-eslint';

/**
 * What each folder of shared/ may import besides itself and the loose files there. Imports point one way, so
 * a folder also reaches nothing that it may not import.
 */
const layers = {
  'shared/rl': ['shared/wire'],
  'shared/telemetry': ['shared/wire'],
  'shared/wire': ['shared/rl'],
  'shared/model': ['shared/rl'],
  'shared/tinker': ['shared/rl', 'shared/telemetry'],
  'shared/broker': ['shared/wire', 'shared/telemetry'],
  'shared/hub': ['shared/telemetry'],
  'shared/evaluation': ['shared/rl', 'shared/wire', 'shared/wire/run-config', 'shared/telemetry'],
  'shared/run': ['shared/broker', 'shared/wire', 'shared/wire/run-config'],
};
/** Every other folder there is a task. */
const tasks = readdirSync(new URL('shared', import.meta.url), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => `shared/${name}`)
  .filter((folder) => !(folder in layers) && !['shared/tasks', 'shared/pretrain'].includes(folder));
const shared = [
  ...Object.keys(layers),
  ...['shared/wire/run-config', 'shared/tasks', ...tasks, 'shared/pretrain'],
];

/** Services meet only in messages, so each may import from these folders and from itself alone. */
const mayImport = {
  ...layers,
  ...Object.fromEntries(tasks.map((task) => [task, ['shared/tasks', 'shared/wire']])),
  'shared/tasks': ['shared/wire', 'shared/telemetry', 'shared/hub', 'shared/model', ...tasks],
  'shared/wire/run-config': ['shared/wire', 'shared/rl', 'shared/tasks'],
  'shared/pretrain': shared,
  shared: ['shared/telemetry'],
  actor: shared,
  learner: shared,
  'learner/local-backend': ['shared/rl', 'shared/telemetry', 'shared/model', 'shared/tinker'],
  'reward-service': shared,
  'deploy/local': shared,
};
/** Two of them are no folders: a file that belongs to a lower layer than its folder, and the loose files of shared/. */
const filesOf = { 'shared/wire/run-config': 'shared/wire/run-config.ts', shared: 'shared/*.ts' };
const folders = [
  ...shared,
  'actor',
  'learner',
  'learner/local-backend',
  'reward-service',
  'deploy',
  'test',
];

/** An import of something in `other` by a file of `folder`: its path leaves out what the two have in common. */
function importOf(other, folder) {
  const own = folder.split('/');
  const path = other.split('/').filter((name, index) => name !== own[index]);
  // A folder that holds `folder` itself: one level up.
  if (path.length === 0) return '^\\.\\./(?!\\.\\./)';
  return `^\\.{1,2}/(?:\\.\\./)*${path.join('/')}(?:/|\\.js$)`;
}

const importRules = Object.entries(mayImport).map(([folder, allowed]) => ({
  files: [filesOf[folder] ?? `${folder}/**/*.ts`],
  rules: {
    'no-restricted-imports': [
      'error',
      {
        patterns: [
          ...folders
            .filter((other) => other !== folder && !allowed.includes(other))
            .filter((other) => other !== 'deploy' || folder !== 'deploy/local')
            .map((other) => ({
              regex: importOf(other, folder),
              message: `${folder} imports nothing of ${other}; eslint.config.mjs has the layers.`,
            })),
          ...(folder === 'shared/broker'
            ? []
            : [{ group: ['nats'], message: 'Only shared/broker imports nats.' }]),
        ],
      },
    ],
  },
}));

export default tseslint.config(
  { ignores: ['dist/', 'runs/', 'sweeps/', '.cache/', 'node_modules/', '**/*_pb.ts'] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        projectService: { allowDefaultProject: ['*.mjs', 'deploy/local/*.mjs'] },
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      '@typescript-eslint/restrict-template-expressions': [
        'error',
        { allowNumber: true, allowBoolean: true },
      ],
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_' },
      ],
      // node:test's describe and it return promises that the runner itself awaits.
      '@typescript-eslint/no-floating-promises': [
        'error',
        {
          allowForKnownSafeCalls: [
            { from: 'package', package: 'node:test', name: ['describe', 'it', 'test', 'suite'] },
          ],
        },
      ],
      // Typed arrays and fixed shapes are indexed inside bounds that the loop just established.
      '@typescript-eslint/no-non-null-assertion': 'off',
      // Generics that name a return type are how a codec's schema types its result.
      '@typescript-eslint/no-unnecessary-type-parameters': 'off',
      eqeqeq: 'error',
      'no-console': 'error',
    },
  },
  ...importRules,
  { files: ['**/*.mjs'], ...tseslint.configs.disableTypeChecked },
  { files: ['deploy/local/*.mjs'], rules: { 'no-console': 'off' } },
);

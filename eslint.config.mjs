import tseslint from 'typescript-eslint';

/** Services meet only in messages, so each may import from these folders and from itself alone. */
const mayImport = {
  shared: ['shared'],
  actor: ['shared', 'actor'],
  learner: ['shared', 'learner'],
  'reward-service': ['shared', 'reward-service'],
  'deploy/local': ['shared', 'deploy/local'],
};
const rooms = ['shared', 'actor', 'learner', 'reward-service', 'deploy', 'test'];

const importRules = Object.entries(mayImport).map(([room, allowed]) => ({
  files: [`${room}/**/*.ts`],
  rules: {
    'no-restricted-imports': [
      'error',
      {
        patterns: [
          {
            // A path that climbs out of the room into one that the design does not allow.
            regex: `^(?:\\.\\./)+(?:${rooms
              .filter((other) => !allowed.some((name) => name.split('/')[0] === other))
              .join('|')})/`,
            message: `${room} imports only ${allowed.join(' and ')}: services meet in messages.`,
          },
          ...(room === 'shared'
            ? [{ group: ['nats'], message: 'Only shared/broker imports nats.' }]
            : [{ group: ['nats'], message: 'Use shared/broker.' }]),
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
  { files: ['shared/broker/**/*.ts'], rules: { 'no-restricted-imports': 'off' } },
  { files: ['**/*.mjs'], ...tseslint.configs.disableTypeChecked },
  { files: ['deploy/local/*.mjs'], rules: { 'no-console': 'off' } },
);

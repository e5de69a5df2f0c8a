import { dirname, join, relative } from 'node:path';
import tseslint from 'typescript-eslint';

/**
 * What each folder may import besides itself, from the bottom of the tree to its top. Services meet only in
 * messages, so none of them is in the list of another.
 */
const layers = {
  'shared/base': [],
  'shared/rl': ['shared/base'],
  'shared/wire': ['shared/base'],
  'shared/service': ['shared/base'],
  'shared/model': ['shared/base', 'shared/rl'],
  'shared/tinker': ['shared/base', 'shared/rl', 'shared/service'],
  'shared/engine': ['shared/base', 'shared/service', 'shared/model', 'shared/tinker'],
  'shared/broker': ['shared/base', 'shared/wire', 'shared/service'],
  'shared/tasks': ['shared/base', 'shared/wire', 'shared/service'],
  'shared/run': ['shared'],
  'local-backend': ['shared/base', 'shared/rl', 'shared/service', 'shared/model', 'shared/tinker'],
  actor: ['shared'],
  learner: ['shared'],
  'reward-service': ['shared'],
  'cli/services.ts': ['shared', 'actor', 'learner', 'reward-service', 'local-backend'], // imported when one is asked for
  cli: ['shared', 'tools'], // tools only in cli.ts, which names every command
  tools: ['shared', 'cli', 'learner/groups'], // the simulator decides with the learner's own code
  deploy: ['shared', 'cli'],
};

const isIn = (folder) => (path) => path === folder || path.startsWith(`${folder}/`);

/** Names the first import of a file that the table above does not allow. */
const importsPointDown = {
  create(context) {
    const file = relative(import.meta.dirname, context.filename);
    const [folder, allowed] = Object.entries(layers).find(([name]) => isIn(name)(file)) ?? [];
    if (folder === undefined) return {};
    const check = ({ source }) => {
      if (source?.type !== 'Literal' || !source.value.startsWith('.')) return;
      const target = relative(import.meta.dirname, join(dirname(context.filename), source.value));
      if ([folder, ...allowed].some((name) => isIn(name)(target))) return;
      const may = allowed.length === 0 ? 'nothing of ours' : allowed.join(', ');
      context.report({
        node: source,
        message: `${folder} must not import ${target}: it may import ${may}.`,
      });
    };
    return {
      ImportDeclaration: check,
      ImportExpression: check,
      ExportNamedDeclaration: check,
      ExportAllDeclaration: check,
    };
  },
};

export default tseslint.config(
  { ignores: ['dist/', 'runs/', 'sweeps/', 'models/', '.cache/', 'node_modules/', '**/*_pb.ts'] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        projectService: { allowDefaultProject: ['*.mjs', 'cli/*.mjs'] },
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
      // A fifth of the time of all rules; the values that they look for come from `any`, which other rules find.
      '@typescript-eslint/no-unsafe-class-instance-assignment': 'off',
      '@typescript-eslint/no-unsafe-enum-assignment': 'off',
      eqeqeq: 'error',
      'no-console': 'error',
    },
  },
  {
    files: Object.keys(layers).map((folder) => `${folder}/**/*.ts`),
    plugins: { layers: { rules: { 'imports-point-down': importsPointDown } } },
    rules: {
      'layers/imports-point-down': 'error',
      'no-restricted-imports': ['error', { name: 'nats', message: 'Use shared/broker.' }],
    },
  },
  { files: ['shared/broker/**/*.ts'], rules: { 'no-restricted-imports': 'off' } },
  { files: ['**/*.mjs'], ...tseslint.configs.disableTypeChecked },
  { files: ['cli/*.mjs'], rules: { 'no-console': 'off' } },
);

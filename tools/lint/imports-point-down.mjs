/** A rule for oxlint: each folder imports only those below it. */
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

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

/** Names each import of a file that the table above does not allow. */
const rule = {
  create(context) {
    const file = relative(root, context.filename);
    const [folder, allowed] = Object.entries(layers).find(([name]) => isIn(name)(file)) ?? [];
    if (folder === undefined) return {};
    const check = ({ source }) => {
      if (source?.type !== 'Literal' || !source.value.startsWith('.')) return;
      const target = relative(root, join(dirname(context.filename), source.value));
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

export default { meta: { name: 'layers' }, rules: { 'imports-point-down': rule } };

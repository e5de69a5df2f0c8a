import { type Node, parseSync, visitorKeys } from 'oxc-parser';

/** A source with one small fault. */
export interface Mutant {
  readonly line: number; // from 1, as is the column
  readonly column: number;
  readonly before: string; // the code that is replaced
  readonly after: string;
  readonly source: string; // all of it, with the fault
}

interface Place {
  readonly start: number;
  readonly end: number;
}

interface Change {
  readonly at: Place;
  readonly after: string;
}

/** Boundaries, arithmetic and logic. */
const otherOperators: Readonly<Partial<Record<string, string>>> = {
  ...{ '<': '<=', '<=': '<', '>': '>=', '>=': '>', '===': '!==', '!==': '===' },
  ...{ '+': '-', '-': '+', '*': '/', '/': '*', '+=': '-=', '-=': '+=' },
  ...{ '&&': '||', '||': '&&' },
};

/** Every mutant of a TypeScript file, in the order of the file. */
export function mutantsOf(text: string): Mutant[] {
  const { program, errors } = parseSync('file.ts', text);
  if (errors.length > 0) throw new SyntaxError(errors[0]!.message);
  const textOf = ({ start, end }: Place): string => text.slice(start, end);
  const changes: Change[] = [];
  const visit = (node: Node): void => {
    if (hasNoBehavior(node, textOf)) return;
    changes.push(...changesOf(node, text, textOf));
    // The text of an error is for people; whether it is thrown is what counts.
    if (node.type !== 'ThrowStatement') childrenOf(node).forEach(visit);
  };
  visit(program);
  return changes.map(({ at, after }) => {
    const before = text.slice(0, at.start);
    return {
      line: before.split('\n').length,
      column: at.start - before.lastIndexOf('\n'),
      before: textOf(at),
      after,
      source: before + after + text.slice(at.end),
    };
  });
}

/** The nodes below a node that may be evaluated, in the order of the file. */
function childrenOf(node: Node): Node[] {
  const parts = node as unknown as Readonly<Record<string, Node | readonly (Node | null)[] | null>>;
  const keys = visitorKeys[node.type] ?? [];
  const isNamed = node.type === 'Property' && !node.computed;
  return keys
    .filter((key) => !(isNamed && key === 'key'))
    .flatMap((key) => parts[key] ?? [])
    .filter((child) => child !== null)
    .sort((a, b) => a.start - b.start);
}

const typescriptWithBehavior =
  /^TS(?:As|NonNull|Satisfies|Instantiation)Expression$|^TSParameterProperty$/;

/** Types, imports, log lines and the declarations of metrics. */
function hasNoBehavior(node: Node, textOf: (place: Place) => string): boolean {
  if (node.type.startsWith('TS')) return !typescriptWithBehavior.test(node.type);
  if (node.type === 'ImportDeclaration') return true;
  if (node.type === 'NewExpression') {
    return /^(?:Counter|Gauge|Histogram)$/.test(textOf(node.callee));
  }
  return node.type === 'CallExpression' && /(?:\blog\.\w+|\.describe)$/.test(textOf(node.callee));
}

function changesOf(node: Node, text: string, textOf: (place: Place) => string): Change[] {
  switch (node.type) {
    case 'BinaryExpression':
    case 'LogicalExpression':
    case 'AssignmentExpression': {
      const { operator, left, right } = node;
      const after = otherOperators[operator];
      const isOfText = [left, right].some((side) => /['`]/.test(textOf(side)));
      if (after === undefined || (operator.includes('+') && isOfText)) return [];
      const start = text.indexOf(operator, left.end);
      return [{ at: { start, end: start + operator.length }, after }];
    }
    case 'UnaryExpression': {
      const isNegation = node.operator === '!' || node.operator === '-';
      return isNegation ? [{ at: node, after: textOf(node.argument) }] : [];
    }
    case 'Literal':
      if (typeof node.value === 'boolean') return [{ at: node, after: String(!node.value) }];
      return typeof node.value === 'number' ? [{ at: node, after: `(${textOf(node)} + 1)` }] : [];
    case 'IfStatement':
    case 'ConditionalExpression':
      return ['true', 'false'].map((after) => ({ at: node.test, after }));
    case 'CallExpression': {
      // A filter that keeps everything, and the other end of a range.
      const { callee } = node;
      if (callee.type !== 'MemberExpression' || callee.computed) return [];
      const { object, property } = callee;
      const name = textOf(property);
      if (name === 'filter') return [{ at: node, after: textOf(object) }];
      if (textOf(object) !== 'Math' || !/^(?:min|max)$/.test(name)) return [];
      return [{ at: property, after: name === 'min' ? 'max' : 'min' }];
    }
    // Statements without which the file still compiles; one that only writes a log line has no mutant.
    case 'ExpressionStatement':
      return hasNoBehavior(node.expression, textOf) ? [] : [{ at: node, after: ';' }];
    case 'ReturnStatement':
      return node.argument === null ? [{ at: node, after: ';' }] : [];
    case 'ThrowStatement':
    case 'ContinueStatement':
    case 'BreakStatement':
      return [{ at: node, after: ';' }];
    default:
      return [];
  }
}

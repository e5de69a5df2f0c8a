import ts from 'typescript-6';

/** A source with one small fault. */
export interface Mutant {
  readonly line: number; // from 1, as is the column
  readonly column: number;
  readonly before: string; // the code that is replaced
  readonly after: string;
  readonly source: string; // all of it, with the fault
}

interface Change {
  readonly node: ts.Node;
  readonly after: string;
}

const K = ts.SyntaxKind;

/** Boundaries, arithmetic and logic. */
const otherOperators: Readonly<Partial<Record<ts.SyntaxKind, string>>> = {
  ...{ [K.LessThanToken]: '<=', [K.LessThanEqualsToken]: '<' },
  ...{ [K.GreaterThanToken]: '>=', [K.GreaterThanEqualsToken]: '>' },
  ...{ [K.EqualsEqualsEqualsToken]: '!==', [K.ExclamationEqualsEqualsToken]: '===' },
  ...{ [K.PlusToken]: '-', [K.MinusToken]: '+', [K.AsteriskToken]: '/', [K.SlashToken]: '*' },
  ...{ [K.PlusEqualsToken]: '-=', [K.MinusEqualsToken]: '+=' },
  ...{ [K.AmpersandAmpersandToken]: '||', [K.BarBarToken]: '&&' },
};

/** Every mutant of a TypeScript file, in the order of the file. */
export function mutantsOf(text: string): Mutant[] {
  const file = ts.createSourceFile('file.ts', text, ts.ScriptTarget.Latest, true);
  const changes: Change[] = [];
  const visit = (node: ts.Node): void => {
    if (hasNoBehavior(node)) return;
    changes.push(...changesOf(node));
    // The text of an error is for people; whether it is thrown is what counts.
    if (!ts.isThrowStatement(node)) ts.forEachChild(node, visit);
  };
  visit(file);
  return changes.map(({ node, after }) => {
    const [start, end] = [node.getStart(file), node.getEnd()];
    const { line, character } = file.getLineAndCharacterOfPosition(start);
    return {
      ...{ line: line + 1, column: character + 1 },
      before: text.slice(start, end),
      after,
      source: text.slice(0, start) + after + text.slice(end),
    };
  });
}

/** Types, imports, log lines and the declarations of metrics. */
function hasNoBehavior(node: ts.Node): boolean {
  if (ts.isTypeNode(node) || ts.isImportDeclaration(node)) return true;
  if (ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return true;
  if (ts.isNewExpression(node)) {
    return /^(?:Counter|Gauge|Histogram)$/.test(node.expression.getText());
  }
  return ts.isCallExpression(node) && /(?:\blog\.\w+|\.describe)$/.test(node.expression.getText());
}

function changesOf(node: ts.Node): Change[] {
  if (ts.isBinaryExpression(node)) {
    const after = otherOperators[node.operatorToken.kind];
    const isOfText = [node.left, node.right].some((side) => /['`]/.test(side.getText()));
    if (after === undefined || (/[+]/.test(node.operatorToken.getText()) && isOfText)) return [];
    return [{ node: node.operatorToken, after }];
  }
  if (ts.isPrefixUnaryExpression(node)) {
    const isNegation = node.operator === K.ExclamationToken || node.operator === K.MinusToken;
    return isNegation ? [{ node, after: node.operand.getText() }] : [];
  }
  if (node.kind === K.TrueKeyword) return [{ node, after: 'false' }];
  if (node.kind === K.FalseKeyword) return [{ node, after: 'true' }];
  if (ts.isNumericLiteral(node) && !isKey(node)) {
    return [{ node, after: `(${node.getText()} + 1)` }];
  }
  if (ts.isIfStatement(node)) return either(node.expression);
  if (ts.isConditionalExpression(node)) return either(node.condition);
  if (ts.isCallExpression(node)) return callChanges(node);
  if (isRemovable(node)) return [{ node, after: ';' }];
  return [];
}

function isKey(node: ts.Node): boolean {
  return ts.isPropertyAssignment(node.parent) && node.parent.name === node;
}

function either(node: ts.Node): Change[] {
  return ['true', 'false'].map((after) => ({ node, after }));
}

/** A filter that keeps everything, and the other end of a range. */
function callChanges({ expression: called }: ts.CallExpression): Change[] {
  if (!ts.isPropertyAccessExpression(called)) return [];
  const { expression: object, name } = called;
  if (name.text === 'filter') return [{ node: called.parent, after: object.getText() }];
  if (object.getText() !== 'Math' || !/^(?:min|max)$/.test(name.text)) return [];
  return [{ node: name, after: name.text === 'min' ? 'max' : 'min' }];
}

/** Statements without which the file still compiles; one that only writes a log line has no mutant. */
function isRemovable(node: ts.Node): boolean {
  if (ts.isExpressionStatement(node)) return !hasNoBehavior(node.expression);
  if (ts.isReturnStatement(node)) return node.expression === undefined;
  return ts.isThrowStatement(node) || ts.isContinueStatement(node) || ts.isBreakStatement(node);
}

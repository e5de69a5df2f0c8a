/** One operation of a training run that the backend has answered. */
export interface Operation {
  readonly model: string;
  readonly seq: number; // its position among the model's operations
  readonly kind: 'pass' | 'step' | 'state' | 'policy' | 'load';
  /** The name of a save, or the path of a load. */
  readonly name?: string;
  /** For a pass, the key of each group that it trained on. */
  readonly groups?: readonly string[];
}

/** The weights of a model after its operations with lower numbers than `before`. */
export interface Point {
  readonly model: string;
  readonly before: number;
}

/** The effect of one step of a run on the weights. */
export interface TrainedStep {
  /** Its passes, in the order of the optimizer steps (the substeps) that used them. */
  readonly substeps: readonly (readonly Operation[])[];
  readonly from: Point; // the weights at its start
}

/** The descent of weights: every operation that contributed to them, in order. */
export class Lineages {
  readonly #byModel = new Map<string, Operation[]>();

  /** @param operations in any order; one that was sent twice has one sequence number and counts once. */
  constructor(operations: readonly Operation[]) {
    const seen = new Set<string>();
    for (const operation of operations) {
      const { model, seq } = operation;
      if (seen.has(`${model} ${seq}`)) continue;
      seen.add(`${model} ${seq}`);
      this.#byModel.set(model, [...(this.#byModel.get(model) ?? []), operation]);
    }
    for (const list of this.#byModel.values()) list.sort((a, b) => a.seq - b.seq);
  }

  /** The weights of a saved state. @throws {Error} if it was never saved. */
  saved(path: string): Point {
    const [, model = '', name] = /^tinker:\/\/([^/]+)\/weights\/(.+)$/.exec(path) ?? [];
    const save = this.#of(model).findLast((each) => each.kind === 'state' && each.name === name);
    if (save === undefined) throw new Error(`the backend never saved the state ${path}`);
    return { model, before: save.seq };
  }

  /** The weights that were published as a version; the last ones, if several were. */
  published(version: number): Point | undefined {
    const name = `policy-${String(version).padStart(6, '0')}`;
    for (const [model, operations] of [...this.#byModel].reverse()) {
      const save = operations.findLast((each) => each.kind === 'policy' && each.name === name);
      if (save !== undefined) return { model, before: save.seq };
    }
    return undefined;
  }

  /** The models that the weights passed through, first to last, each with the point where it was left. */
  chain(point: Point): Point[] {
    const [first] = this.#of(point.model);
    const isRestored = first?.kind === 'load' && first.seq < point.before;
    return isRestored ? [...this.chain(this.saved(first.name!)), point] : [point];
  }

  /**
   * All operations that produced the weights, in order. Passes without a following optimizer step had no
   * effect: a learner that was asked to stop gave them up.
   */
  history(point: Point): Operation[] {
    return this.chain(point).flatMap(({ model, before }) => {
      const done = this.#of(model).filter(({ seq }) => seq < before);
      const last = done.findLastIndex(({ kind }) => kind === 'step');
      return done.filter(({ kind }, i) => kind !== 'pass' || i < last);
    });
  }

  /**
   * The steps of the run that produced the weights. Each ends with a publication, after one optimizer step
   * or several; for weights saved in the middle of a step, that step is the last.
   */
  steps(point: Point): TrainedStep[] {
    const steps: TrainedStep[] = [];
    let passes: Operation[] = [];
    let substeps: Operation[][] = [];
    let from: Point | undefined;
    const close = () => {
      if (substeps.length > 0) steps.push({ substeps, from: from! });
      [passes, substeps, from] = [[], [], undefined];
    };
    for (const operation of this.history(point)) {
      const { kind, model, seq } = operation;
      if (kind === 'policy' || kind === 'load') close();
      if (kind === 'pass') {
        from ??= { model, before: seq };
        passes.push(operation);
      } else if (kind === 'step') {
        from ??= { model, before: seq };
        substeps.push(passes);
        passes = [];
      }
    }
    close();
    return steps;
  }

  /** The number of steps that produced the weights. */
  depth(point: Point): number {
    return this.steps(point).length;
  }

  /** The number of steps from one to the other: back to their fork and forward again. */
  distance(a: Point, b: Point): number {
    const others = this.chain(b);
    const forks = this.chain(a).flatMap(({ model, before }) =>
      others
        .filter((other) => other.model === model)
        .map((other) => this.depth({ model, before: Math.min(before, other.before) })),
    );
    // Adapters with the same seed are identical before their first step, in every model.
    return this.depth(a) + this.depth(b) - 2 * Math.max(0, ...forks);
  }

  #of(model: string): readonly Operation[] {
    return this.#byModel.get(model) ?? [];
  }
}

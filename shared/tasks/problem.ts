/** What every part of a run knows of a problem; the rest only its task does. */
export interface TaskProblem {
  /** Says the problem's content: the same in every run and process, another for another problem. */
  readonly id: string;
  /** The kind that it is of, such as `4 numbers`: evaluations tell kinds apart. */
  readonly difficulty: string;
}

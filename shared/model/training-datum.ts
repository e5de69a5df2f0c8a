/** One sequence to learn from. No shift is applied: targets[i] is judged given tokens[0…i]. */
export interface TrainingDatum {
  readonly tokens: Int32Array; // [N]
  readonly targetTokens: Int32Array; // [N]
  readonly weights?: Float32Array; // [N]
  readonly logprobs?: Float32Array; // [N], of the behavior policy
  readonly advantages?: Float32Array; // [N]
}

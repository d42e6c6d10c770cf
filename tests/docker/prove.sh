#!/usr/bin/env bash
# Proves compose.yaml on this machine: the images come up, turn healthy and log, a task published
# from the host is taken, and the run continues after an agent was killed.
#
#   tests/docker/prove.sh            the image around target/debug/dyad (make build);
#                                    DYAD_BINARY=path for another
#   tests/docker/prove.sh --users    with a user for each process (compose.users.yaml)
#   tests/docker/prove.sh --compose  agents with other names and an engine, by `dyad compose`
#   tests/docker/prove.sh --full     the image as the Dockerfile builds it (about 10 minutes)
#   KEEP=1 tests/docker/prove.sh     leave everything running to look at
#
# A tag (debian, rabbitmq, redis, rust) that is not on this machine is replaced by an image made
# from Debian packages, so no registry is needed. Needs root, a Docker engine, docker compose and
# debootstrap.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
project=dyad-proof-$$
full=
users=
override=
agents=(a b)
case ${1:-} in
--full) full=1 ;;
--users) users=1 ;;
--compose) override=1 agents=(left right) ;;
esac
first=agent-${agents[0]} second=agent-${agents[1]}

say() { printf 'docker: %s\n' "$*" >&2; }
fail() {
    say "FAILED: $*"
    exit 1
}

if docker compose version >/dev/null 2>&1; then compose=(docker compose); else compose=(docker-compose); fi
for tool in docker "${compose[0]}" curl; do
    command -v "$tool" >/dev/null || fail "$tool is missing (apt-get install docker.io docker-compose curl)"
done
docker info >/dev/null 2>&1 || fail "no Docker engine answers"

compose() {
    local files=(-f "$root/compose.yaml")
    [ -z "$users" ] || files+=(-f "$root/compose.users.yaml")
    [ -z "$override" ] || files+=(-f "$work/compose.override.yaml")
    "${compose[@]}" --project-directory "$root" --env-file "$work/env" -p "$project" "${files[@]}" -f "$work/longer.yaml" "$@"
}
container() { docker ps -aq --filter "label=com.docker.compose.project=$project" --filter "label=com.docker.compose.service=$1"; }
health() { docker inspect -f '{{.State.Health.Status}}' "$(container "$1")" 2>/dev/null || echo missing; }

started=
finish() {
    local status=$?
    if [ -n "$started" ]; then
        if [ "$status" != 0 ]; then compose logs --tail 30 >&2 || true; fi
        if [ -n "${KEEP:-}" ]; then say "left running as project $project"; return; fi
        compose down -v --timeout 10 >/dev/null 2>&1 || true
    fi
    rm -rf "$work"
}
trap finish EXIT

have_image() { docker image inspect "$1" >/dev/null 2>&1; }

build() { # build TAG FOLDER: with the classic builder, which asks no registry for an image that is here
    DOCKER_BUILDKIT=0 docker build --network host -t "$1" "$2" >"$work/build.log" 2>&1 || {
        tail -20 "$work/build.log" >&2
        fail "docker build of $1"
    }
}

stand_in_debian() {
    have_image debian:bookworm-slim && return
    command -v debootstrap >/dev/null || fail "debootstrap is missing (apt-get install debootstrap)"
    say "debian:bookworm-slim is made with debootstrap (about a minute)"
    debootstrap --variant=minbase bookworm "$work/debian" >"$work/debootstrap.log" 2>&1 || fail "$(tail -3 "$work/debootstrap.log")"
    tar -C "$work/debian" --one-file-system -c . \
        | docker import --change 'CMD ["bash"]' --change 'LABEL dyad.stand-in=debian' - debian:bookworm-slim >/dev/null
    rm -rf "$work/debian"
}

stand_in() { # stand_in TAG FOLDER
    have_image "$1" && return
    stand_in_debian
    say "$1 is made from Debian packages"
    build "$1" "$here/$2"
}

stand_in_rust() { # this machine's toolchain, where the official image has its own
    have_image rust:1.95.0-bookworm && return
    stand_in_debian
    say "rust:1.95.0-bookworm is made from this machine's toolchain"
    mkdir "$work/rust"
    cp -a "$(rustc +1.95.0 --print sysroot)" "$work/rust/toolchain"
    rm -rf "$work/rust/toolchain/share/doc"
    cp /etc/ssl/certs/ca-certificates.crt "$work/rust/host.crt" # this machine may sit behind a proxy with its own
    cat >"$work/rust/Dockerfile" <<'END'
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY toolchain /usr/local/
COPY host.crt /etc/ssl/host.crt
ENV PIP_CERT=/etc/ssl/host.crt CARGO_HTTP_CAINFO=/etc/ssl/host.crt
LABEL dyad.stand-in=rust
END
    build rust:1.95.0-bookworm "$work/rust"
    rm -rf "$work/rust"
}

image_of_dyad() {
    if [ -n "$full" ]; then
        stand_in_rust
        say "dyad:cpu is built by the Dockerfile"
        build dyad:cpu "$root"
        return
    fi
    local binary=${DYAD_BINARY:-$root/target/debug/dyad}
    [ -x "$binary" ] && [ -x "$binary-full" ] || fail "$binary is missing: make build"
    say "dyad:cpu is the Dockerfile's last stage around $binary"
    local context=$work/context
    mkdir -p "$context/out/bin" "$context/out/lib/dyad" "$context/out/gpu" "$context/agents"
    cp "$binary" "$context/out/bin/dyad"
    cp "$binary-full" "$context/out/bin/dyad-full"
    cp -P "${LIBTORCH:-$root/.libtorch/view}"/lib/*.so* "$context/out/lib/dyad/"
    rm -f "$context/out/lib/dyad/libtorch.so"
    cp -r "$root/agents/container" "$context/agents/"
    cp -r "$root/configs" "$context/"
    sed -e '/^# --- built from source/,/^# --- what runs/d' -e 's|COPY --from=build /out|COPY out|' "$root/Dockerfile" >"$context/Dockerfile"
    build dyad:cpu "$context"
    rm -rf "$context"
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

wait_healthy() { # wait_healthy SECONDS SERVICE...
    local until=$((SECONDS + $1)) all service
    shift
    while :; do
        all=1
        for service in "$@"; do [ "$(health "$service")" = healthy ] || all=; done
        [ -z "$all" ] || return 0
        if [ "$SECONDS" -gt "$until" ]; then
            for service in "$@"; do say "$service: $(health "$service")"; done
            fail "not all are healthy"
        fi
        sleep 1
    done
}

stand_in rabbitmq:4.2-management rabbitmq
stand_in redis:7.2 redis
stand_in_debian
image_of_dyad

rabbitmq_port=$(free_port)
dashboard_port=$(free_port)
dashboard_password=proof$RANDOM$RANDOM$RANDOM$RANDOM
cat >"$work/env" <<END
RABBITMQ_USER=dyad
RABBITMQ_PASSWORD=proof$RANDOM$RANDOM
REDIS_PASSWORD=proof$RANDOM$RANDOM
RABBITMQ_PORT=$rabbitmq_port
RABBITMQ_CONSOLE_PORT=$(free_port)
REDIS_PORT=$(free_port)
DASHBOARD_PORT=$dashboard_port
DASHBOARD_PASSWORD=$dashboard_password
DYAD_ENGINE_TOKEN=proof$RANDOM$RANDOM$RANDOM$RANDOM
DYAD_RUN=proof$$
END

# The same run, long enough to kill an agent in its middle.
mkdir "$work/configs"
sed -e 's/^train_steps = .*/train_steps = 3000/' -e '/^stop_at/d' "$root/configs/signal.toml" >"$work/configs/signal.toml"
[ -z "$override" ] || sed -i -e 's/^\[agents\.a\]/[agents.left]/; s/^\[agents\.b\]/[agents.right]/' \
    -e 's/= "a"/= "left"/g; s/= "b"/= "right"/g' "$work/configs/signal.toml"
[ -z "$override" ] || cat >>"$work/configs/signal.toml" <<'END'

[agents.left.engine]
kind = "dyad"
urls = ["http://engine-left:8101"]
weights_listen = "0.0.0.0:8100"
weights_url = "http://agent-left:8100"
END
chmod a+x "$work" && chmod -R a+rX "$work/configs" && chmod 600 "$work/env"
{
    echo "services:"
    for service in coordinator "$first" "$second"; do
        printf '  %s:\n    volumes: ["%s/configs:/configs:ro,z"]\n' "$service" "$work"
    done
} >"$work/longer.yaml"

dyad=${DYAD_BINARY:-$root/target/debug/dyad}
if [ -n "$override" ]; then
    "$dyad" compose "$work/configs/signal.toml" >"$work/compose.override.yaml" || fail "dyad compose"
    # The README's way, without a dyad on the host.
    (cd "$root" && "$dyad" compose configs/guess-number-4b.toml --gpus) >"$work/host.yaml" || fail "dyad compose on the host"
    docker run --rm -v "$root/configs:/var/lib/dyad/configs:z" dyad:cpu compose configs/guess-number-4b.toml --gpus \
        >"$work/inside.yaml" || fail "dyad compose in a container"
    diff "$work/host.yaml" "$work/inside.yaml" >&2 || fail "dyad compose says something else in a container"
    say "dyad compose says the same in a container"
    # Without a GPU its files can be read only. The second has trainers and engines on several GPUs.
    for config in guess-number-4b actor-verifier-astraflow; do
        (cd "$root" && "$dyad" compose "configs/$config.toml" --gpus) >"$work/gpus.yaml" || fail "dyad compose of $config"
        "${compose[@]}" --project-directory "$root" --env-file "$work/env" -f "$root/compose.yaml" -f "$work/gpus.yaml" \
            config -q >&2 || fail "docker compose cannot read what dyad compose says of $config"
        grep -q device_ids "$work/gpus.yaml" || fail "the services of $config have no GPUs"
    done
    say "docker compose reads the services with GPUs"
fi
if [ -n "$users" ]; then
    # shellcheck source=/dev/null
    . "$work/env"
    "$dyad" topology export --run "$DYAD_RUN" --config "$work/configs/signal.toml" --out "$work/users" \
        --broker amqp://rabbitmq:5672/dyad --state redis://redis:6379/0 >&2 || fail "topology export"
    { cat "$work/users/compose.env"; echo "DYAD_USERS=$work/users"; } >>"$work/env"
fi

# Configurations in the file itself need Compose 2.23.1.
if printf 'configs: {c: {content: ""}}\nservices: {s: {image: s}}\n' | "${compose[@]}" -f - config -q 2>/dev/null; then
    METRICS_PASSWORD=proof GRAFANA_PASSWORD=proof compose -f "$root/compose.observe.yaml" --profile dashboard config -q \
        || fail "compose.observe.yaml"
    say "compose.observe.yaml is valid"
else
    say "compose.observe.yaml was not read: this Compose is older than 2.23.1"
fi

say "docker compose up"
started=1
begun=$SECONDS
compose up -d --no-build >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "compose up"; }
wait_healthy 180 rabbitmq redis coordinator "$first" "$second"
[ -z "$override" ] || [ -z "$(container agent-a)" ] || fail "agent-a of compose.yaml runs too"
say "all five healthy after $((SECONDS - begun)) s"

for service in coordinator "$first" "$second"; do
    lines=$(compose logs --no-color "$service" | wc -l)
    [ "$lines" -gt 1 ] || fail "$service logs nothing"
    say "$service: $lines lines of log"
done

[ "$(docker exec "$(container "$first")" id -u)" != 0 ] || fail "$first runs as root"
# `grep -q` ends at the first match, and pipefail would take the writer's end for a failure.
users_there=$(docker exec "$(container rabbitmq)" rabbitmqctl -q list_users) || fail "RabbitMQ lists no users"
case $'\n'$users_there in *$'\n'guest*) fail "RabbitMQ has the user guest" ;; esac
published=$(docker port "$(container rabbitmq)" 5672)
case $published in 127.0.0.1:*) ;; *) fail "RabbitMQ is published on $published" ;; esac
say "not root, no guest, published on $published only"

step() { compose logs --no-color coordinator | sed -n 's/.*step \([0-9]*\)\/.*/\1/p' | tail -1; }
wait_beyond() { # wait_beyond STEP SECONDS: training goes on
    local until=$((SECONDS + $2)) now
    until now=$(step) && [ "${now:-0}" -gt "$1" ]; do
        [ "$SECONDS" -lt "$until" ] || fail "no progress: still at step ${now:-0}"
        sleep 1
    done
    say "at step $now"
}
wait_beyond 0 60
if [ -n "$override" ]; then
    swaps=$(compose logs --no-color engine-left | grep -c "new weights" || true)
    [ "$swaps" -gt 0 ] || fail "engine-left got no weights"
    say "engine-left generates for agent left: it got new weights $swaps times"
fi

say "the dashboard"
compose --profile dashboard up -d --no-build dashboard >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "dashboard"; }
answer() { # answer CURL-OPTION...: the HTTP status of /api/runs; its body is in $work/answer
    curl -s -o "$work/answer" -w '%{http_code}' "$@" "http://127.0.0.1:$dashboard_port/api/runs" || true
}
token=(-H "Authorization: Bearer $dashboard_password")
until=$((SECONDS + 30))
until [ "$(answer "${token[@]}")" = 200 ]; do
    [ "$SECONDS" -lt "$until" ] || { compose logs dashboard >&2; fail "the dashboard does not answer"; }
    sleep 0.5
done
grep -q "proof$$" "$work/answer" || fail "the dashboard does not list the run: $(head -c 300 "$work/answer")"
[ "$(answer)" = 401 ] || fail "the dashboard answers without a token"
say "it lists the run, and refuses callers without a token"

if [ -z "$full" ]; then
    # shellcheck source=/dev/null
    . "$work/env"
    echo '{"prompt": "o3", "label": "o3", "id": "from-the-host"}' >"$work/task.jsonl"
    url=amqp://$RABBITMQ_USER:$RABBITMQ_PASSWORD@127.0.0.1:$rabbitmq_port/dyad
    [ -z "$users" ] || url=${DYAD_BROKER_PUBLISHER/rabbitmq:5672/127.0.0.1:$rabbitmq_port}
    "$dyad" publish --config "$work/configs/signal.toml" --run "$DYAD_RUN" --broker "$url" "$work/task.jsonl" >&2 \
        || fail "publishing from the host"
fi

say "kill -9 of $second"
killed_at=$(step)
restarts() { docker inspect -f '{{.RestartCount}}' "$(container "$second")"; }
before=$(restarts)
docker exec "$(container "$second")" sh -c 'for d in /proc/[0-9]*; do [ "$(cat "$d/comm")" != dyad-full ] || kill -9 "${d#/proc/}"; done' \
    || true # the container may end before this shell does
until=$((SECONDS + 60))
until [ "$(restarts)" -gt "$before" ]; do
    [ "$SECONDS" -lt "$until" ] || fail "$second was not started again"
    sleep 0.5
done
wait_healthy 120 "$second" "$first" coordinator
say "$second came back and is healthy"
# Batches since the last checkpoint are trained again first, hence the margin.
wait_beyond $((killed_at + 20)) 120

say "a configuration that is refused"
if [ -z "$override" ]; then
    missing=missing.toml
    printf 'DYAD_CONFIG=configs/missing.toml\n' >>"$work/env"
else # what `dyad compose` writes names its configuration itself
    missing=signal.toml
    rm "$work/configs/signal.toml"
fi
compose up -d --no-build --no-deps --force-recreate "$first" >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "compose up"; }
until=$((SECONDS + 30))
until [ "$(docker inspect -f '{{.State.Status}}' "$(container "$first")")" = exited ]; do
    [ "$SECONDS" -lt "$until" ] || fail "$first does not end without its configuration"
    sleep 0.5
done
sleep 5
state=$(docker inspect -f '{{.State.Status}} {{.RestartCount}}' "$(container "$first")")
[ "$state" = "exited 0" ] || fail "$first is started again: $state"
said=$(compose logs --no-color "$first") || fail "no log of $first"
case $said in *"$missing"*) ;; *) fail "$first does not say what is wrong" ;; esac
say "$first stays down and says why"
say "passed"

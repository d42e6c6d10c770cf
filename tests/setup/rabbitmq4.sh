#!/usr/bin/env bash
# Runs a command with RabbitMQ 4 instead of this machine's version:
#   tests/setup/rabbitmq4.sh cargo nextest run --workspace -E 'package(broker) or test(users::)'
#
# The node runs in a root file system of Debian's next release. debootstrap makes it once (300 MB,
# two minutes) in DYAD_RABBITMQ4 (default /var/lib/dyad-rabbitmq4). Needs root: the node runs under
# chroot. It must see the tests' folders, so /tmp is bound there in a mount namespace that ends with
# the command.
set -euo pipefail

root=${DYAD_RABBITMQ4:-/var/lib/dyad-rabbitmq4}
release=trixie
server=/usr/lib/rabbitmq/bin/rabbitmq-server

say() { printf 'rabbitmq4: %s\n' "$*" >&2; }
[ "$(id -u)" = 0 ] || { say "needs root (chroot, mounts)"; exit 1; }
[ $# -gt 0 ] || { say "give the command to run, such as: $0 cargo nextest run -p broker"; exit 2; }

if [ ! -x "$root/usr$server" ] && [ ! -x "$root$server" ]; then
    command -v debootstrap >/dev/null || apt-get -qq install -y --no-install-recommends debootstrap
    say "making $root from Debian's $release"
    debootstrap --variant=minbase --include=rabbitmq-server "$release" "$root" >&2
fi

# In one folder: the tests look for the second program next to the first.
mkdir -p "$root/dyad"
for program in rabbitmq-server rabbitmqctl; do
    printf '#!/bin/sh\nexec chroot %s %s/%s "$@"\n' "$root" "$(dirname "$server")" "$program" >"$root/dyad/$program"
    chmod +x "$root/dyad/$program"
done
say "$(chroot "$root" dpkg-query -W -f='RabbitMQ ${Version}' rabbitmq-server)"

# shellcheck disable=SC2016
exec unshare --mount -- bash -c '
    root=$1; shift
    mount --bind /tmp "$root/tmp"; mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"
    export TMPDIR=/tmp DYAD_RABBITMQ_SERVER=$root/dyad/rabbitmq-server
    exec "$@"' - "$root" "$@"

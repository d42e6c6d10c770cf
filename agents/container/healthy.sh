#!/bin/sh
# Health of a dyad container: its process holds a live connection to the broker; a coordinator also
# to Redis. A hung process loses the broker connection (AMQP heartbeats), so it counts as unhealthy.
set -eu

port_of() { # the port in amqp://user:password@host:5672/vhost, or the usual one
    rest=${1##*@}
    rest=${rest#*://}
    rest=${rest%%/*}
    case $rest in
        *:*) echo "${rest##*:}" ;;
        *) echo "$2" ;;
    esac
}

connected() { # a line of /proc/net/tcp: 0: local:port remote:PORT 01 (established) ...
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -Eq "^ *[0-9]+: [0-9A-F]+:[0-9A-F]{4} [0-9A-F]+:$(printf '%04X' "$1") 01 "
}

case $DYAD_BROKER in amqps:*) usual=5671 ;; *) usual=5672 ;; esac
connected "$(port_of "$DYAD_BROKER" "$usual")" || { echo "no connection to the broker"; exit 1; }
if [ "${1:-}" = coordinator ]; then
    connected "$(port_of "$DYAD_STATE" 6379)" || { echo "no connection to Redis"; exit 1; }
fi

#!/usr/bin/env bash
# phase.sh TITLE EXPECTATION COMMAND...: announces a command and its expected time, runs it, and
# reports its time.
set -euo pipefail
title=$1 expected=$2
shift 2
bold='' plain=''
if [ -t 2 ]; then bold=$'\e[1m' plain=$'\e[0m'; fi
printf '%s==> %s%s (%s)\n' "$bold" "$title" "$plain" "$expected" >&2
status=0
"$@" || status=$?
if [ "$status" = 0 ]; then
    printf '    %s: done in %d s\n' "$title" "$SECONDS" >&2
else
    printf '    %s: failed after %d s (exit status %d)\n' "$title" "$SECONDS" "$status" >&2
fi
exit "$status"

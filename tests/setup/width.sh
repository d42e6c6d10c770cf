#!/usr/bin/env bash
# Names every comment line of more than 100 columns; exits with 1 if there is one.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Columns are characters, not bytes.
export LC_ALL=C.UTF-8
if git ls-files -z -- '*.rs' '*.toml' '*.sh' '*.py' '*.lua' '*.yaml' Makefile Dockerfile |
    xargs -0 grep -nE '^.{101,}$' | grep -E '^([^:]*\.rs:[0-9]+:\s*//|[^:]*\.lua:[0-9]+:\s*--|[^:]*:[0-9]+:\s*# )'; then
    echo "the comments above have more than 100 columns: wrap them" >&2
    exit 1
fi

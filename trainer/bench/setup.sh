#!/usr/bin/env bash
# Makes the Python environment of `make bench-train` beside this file, once.
set -euo pipefail
cd "$(dirname "$0")"
if ! cmp -s requirements.txt .venv/made-from; then
    python3 -m venv .venv
    .venv/bin/pip install --quiet --requirement requirements.txt
    cp requirements.txt .venv/made-from
fi

#!/usr/bin/env bash
# python.sh FOLDER: makes the Python environment FOLDER/.venv from FOLDER/requirements.txt, once
# (`make parity`, `make agreement`, `make bench-train`).
set -euo pipefail
cd "$(dirname "$0")/$1"
if ! cmp -s requirements.txt .venv/made-from; then
    python3 -m venv .venv
    .venv/bin/pip install --quiet --requirement requirements.txt
    cp requirements.txt .venv/made-from
fi

#!/usr/bin/env bash
# Runs cargo-deny with deny.toml: licences, bans and sources always; advisories where their database
# can be fetched.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v cargo-deny >/dev/null; then
    echo "cargo-deny is not installed: skipped (cargo install --locked cargo-deny)" >&2
    exit 0
fi
cargo deny --log-level error check licenses bans sources
if cargo deny fetch db >/dev/null 2>&1; then
    cargo deny --log-level error check advisories
else
    echo "the advisory database cannot be fetched: advisories are not checked" >&2
fi

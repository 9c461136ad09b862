#!/usr/bin/env bash
# Checks the GPU's results against the oracle, then measures them, then writes a record.
#
#   scripts/gpu.sh [ISONORM] [NAME]
#
# ISONORM is the program (default: target/release/isonorm, else the one on the path); it holds the kernels, so nothing but a
# driver is needed. NAME is the record's (default: the date and the GPU's number). Environment: DEVICE (default cuda),
# MIN_TIME (seconds for each case, default 0.3), RECORDS (folder, default bench/records), SUITES (what is verified, default:
# every suite but `combinations` and `large`), KEEP_GOING=1 (measure even though a case failed; the exit code says so).
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
isonorm=${1:-}
if [ -z "$isonorm" ]; then
    isonorm=$here/target/release/isonorm
    [ -x "$isonorm" ] || isonorm=$(command -v isonorm) || {
        echo "error: no isonorm; build it with: cargo build --release -p isonorm-cli" >&2
        exit 2
    }
fi
device=${DEVICE:-cuda}
records=${RECORDS:-$here/bench/records}
name=${2:-$(date -u +%Y-%m-%d)-${device//:/}}
suites=${SUITES:-smoke shapes segments adversarial exact pairwise}

echo "== device"
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader
"$isonorm" --version
"$isonorm" explain layernorm x=8192x4096 dtype=bf16 --device "$device"

echo
echo "== verify: results against the oracle"
flags=()
for suite in $suites; do
    flags+=(--suite "$suite")
done
verified=0
"$isonorm" verify --device "$device" "${flags[@]}" || verified=$?
if [ "$verified" != 0 ] && [ "${KEEP_GOING:-0}" != 1 ]; then
    echo "error: not verified, so not measured; KEEP_GOING=1 measures nevertheless" >&2
    exit "$verified"
fi

echo
echo "== bench: time beside the floor"
mkdir -p "$records"
"$isonorm" bench --device "$device" --min-time "${MIN_TIME:-0.3}" --save "$records/$name.json"
echo
echo "record: $records/$name.json"
exit "$verified"

#!/usr/bin/env bash
# Checks the GPU's results against the oracle, then measures them and climbs the ladder, then writes records and a page of them.
#
#   scripts/gpu.sh [ISONORM] [NAME]
#
# ISONORM is the program (default: target/release/isonorm, else the one on the path); it holds the kernels, so nothing but a
# driver is needed. NAME is the record's (default: the date and the GPU's number). Environment: DEVICE (default cuda),
# MIN_TIME (seconds for each case, default 0.3), RECORDS (folder, default bench/records), SUITES (what is verified, default: all),
# KEEP_GOING=1 (measure even though a case failed; the exit code says so),
# SANITIZE (tools of NVIDIA's compute-sanitizer that watch the smaller suites, such as "memcheck racecheck synccheck initcheck";
# default none; what they say goes into NAME.sanitizer.txt), SWEEP=1 (measure LayerNorm over rows of 2^4 to 2^22 elements, into
# NAME-sweep.json, and BatchNorm over batches, channels and spatial sizes, into NAME-sweep-batchnorm.json; isonorm bench
# --html draws both), ABLATE=1 (measure each case without stages of its kernels, too), PEERS=1 (measure PyTorch, torch.compile and, where it is
# installed, Liger-Kernel beside isonorm, with the python3 on the path, into NAME-torch.json), AGREEMENT=PROGRAM (hold the
# errors of both against f64 beside each other, on random problems, with the same python3, into NAME.agreement.txt; the program is
# built by: cargo build --release -p xtask --features agreement --bin agreement).
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
isonorm=${1:-}
if [ -z "$isonorm" ]; then
    isonorm=$here/target/release/isonorm
    [ -x "$isonorm" ] || isonorm=$(command -v isonorm) || {
        echo "error: no isonorm; build it with: cargo build --release -p isonorm-cli (--features interpreter: the ladder counts reads)" >&2
        exit 2
    }
fi
device=${DEVICE:-cuda}
records=${RECORDS:-$here/bench/records}
name=${2:-$(date -u +%Y-%m-%d)-${device//:/}}
sweep_elements=$((1 << 26))
suites=${SUITES:-smoke shapes segments adversarial exact pairwise combinations kernels ladder large}

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

mkdir -p "$records"
if [ -n "${SANITIZE:-}" ]; then
    echo
    echo "== sanitize: $(compute-sanitizer --version | tail -n 1)"
    said=$records/$name.sanitizer.txt
    compute-sanitizer --version | tail -n 1 >"$said"
    for tool in $SANITIZE; do
        command=("$isonorm" verify --device "$device" --suite smoke --suite kernels --suite ladder)
        echo "\$ compute-sanitizer --tool $tool isonorm ${command[*]:1}" | tee -a "$said"
        compute-sanitizer --tool "$tool" --error-exitcode 1 "${command[@]}" >"$said.log" 2>&1 || verified=$?
        grep -E "^=|^suite|  ok$|FAILED" "$said.log" | tee -a "$said"
        rm "$said.log"
    done
fi

if [ -n "${AGREEMENT:-}" ]; then
    echo
    echo "== agreement: errors against f64, isonorm's and PyTorch's"
    cases=$(mktemp)
    said=$records/$name.agreement.txt
    python3 "$here/scripts/torch_reference.py" "$cases" --device cuda --cases "${CASES:-1000}" | tee "$said"
    "$AGREEMENT" "$cases" --device cuda --report | tee -a "$said" || verified=$?
    rm "$cases"
fi

echo
echo "== bench: time beside the floor"
flags=()
[ "${ABLATE:-0}" = 1 ] && flags+=(--ablate)
"$isonorm" bench --device "$device" --min-time "${MIN_TIME:-0.3}" "${flags[@]}" --save "$records/$name.json"
echo
echo "record: $records/$name.json"
made=(--record "$records/$name.json")

echo
echo "== ladder: published kernels beside isonorm"
"$isonorm" ladder --device "$device" --min-time "${MIN_TIME:-0.3}" --save "$records/$name-ladder.json" || verified=$?
made+=(--record "$records/$name-ladder.json")
if [ "${SWEEP:-0}" = 1 ]; then
    echo
    echo "== sweep: rows of every length, $sweep_elements elements in all"
    cases=()
    for ((length = 16; length <= 1 << 22; length *= 2)); do
        for dtype in bf16 f32; do
            for pass in train backward; do
                cases+=(--case "layernorm x=$((sweep_elements / length))x$length dtype=$dtype param=$dtype pass=$pass")
            done
        done
    done
    "$isonorm" bench --device "$device" --min-time "${MIN_TIME:-0.3}" --save "$records/$name-sweep.json" "${cases[@]}"
    echo
    echo "== sweep: BatchNorm, batches of 1 to 512, 1 to 4096 channels, 1 to 512 positions a side"
    cases=()
    for elements in $((1 << 22)) $((1 << 26)); do
        for side in 1 7 14 28 35 56 75 112 224 512; do
            for channels in 1 3 16 64 256 1024 4096; do
                batch=$((elements / (channels * side * side)))
                # A batch that is too large is cut, down to half the elements.
                ((batch >= 1 && batch <= 1024)) || continue
                ((batch <= 512)) || batch=512
                for layout in nchw nhwc; do
                    for pass in train backward; do
                        cases+=(--case "batchnorm x=${batch}x${channels}x${side}x${side} layout=$layout dtype=bf16 pass=$pass")
                    done
                done
            done
        done
    done
    "$isonorm" bench --device "$device" --min-time "${MIN_TIME:-0.3}" --save "$records/$name-sweep-batchnorm.json" "${cases[@]}"
    made+=(--record "$records/$name-sweep.json" --record "$records/$name-sweep-batchnorm.json")
fi
if [ "${PEERS:-0}" = 1 ]; then
    echo
    echo "== peers: PyTorch and Liger beside isonorm"
    python3 "$here/bench/compare_torch.py" --device "$device" --rounds 1 --min-time "${MIN_TIME:-0.3}" --isonorm "$isonorm" \
        --numerics --save "$records/$name-torch.json"
    made+=(--record "$records/$name-torch.json")
fi

echo
echo "== page"
"$isonorm" bench "${made[@]}" --html "$records/$name.html"
exit "$verified"

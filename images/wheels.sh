#!/bin/sh
# The wheels of both images, into build/wheels: ours from this tree, the others as requirements/ pins and hashes them.
#
# IMAGE_PYTHON is the Python of the base image, IMAGE_MACHINE its architecture.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
version=${IMAGE_PYTHON:-3.13}
machine=${IMAGE_MACHINE:-x86_64}
wheels() {
  part=$1
  folder=build/wheels/$part
  rm -rf "$folder"
  mkdir -p "$folder"
  for file in "$@"; do
    set -- "$@" -r "requirements/$file.txt"
    shift
  done
  "$python" -m pip download --quiet --disable-pip-version-check --require-hashes --only-binary :all: --no-deps \
    --python-version "$version" --implementation cp \
    --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
    --dest "$folder" "$@"
  "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$folder" .
}
wheels exporter
wheels accounting parquet pdf

#!/bin/sh
# Inside a build stage: the environment of one image, from wheels alone.
#
# Bytecode is compiled here, since a read-only root never caches it, and is not tied to files' times, which copying
# between stages may change. pip itself stays behind.
set -eu
environment=/opt/slicemeter
python3 -m venv "$environment"
for part in "$@"; do
  set -- "$@" -r "/requirements/$part.txt"
  shift
done
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links /wheels \
  --no-compile --require-hashes "$@"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile /wheels/slicemeter-*.whl
"$environment/bin/python" -m pip uninstall --quiet --yes pip setuptools 2>/dev/null
"$environment/bin/python" /images/sbom.py >"$environment/sbom.cdx.json"
"$environment/bin/python" -m compileall -q --invalidation-mode unchecked-hash "$environment/lib"

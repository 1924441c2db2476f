#!/bin/sh
# Build both images with buildah and write them into build/images, as docker, podman and kind load them.
#
# Needs buildah and a base image: BASE_IMAGE, and IMAGE_PYTHON when its Python is not 3.13. With a base that has Pango
# and with wheels in build/wheels already (WHEELS=kept) nothing is fetched. BUILDAH_FLAGS and BUILD_FLAGS suit hosts
# without overlay or namespaces: BUILDAH_FLAGS="--storage-driver vfs" BUILD_FLAGS="--isolation chroot".
set -eu
cd "$(dirname "$0")/.."
command -v buildah >/dev/null || { echo "make images needs buildah (Debian: apt install buildah)" >&2; exit 1; }
version=$(sed -n 's/^VERSION = "\(.*\)"/\1/p' contract/version.py)
[ "${WHEELS:-}" = kept ] || sh images/wheels.sh
mkdir -p build/images
for part in exporter accounting; do
  # shellcheck disable=SC2086 # flags are words
  buildah ${BUILDAH_FLAGS:-} build --quiet --layers=false ${BUILD_FLAGS:-} \
    ${BASE_IMAGE:+--build-arg "BASE_IMAGE=$BASE_IMAGE"} \
    --target "$part" --tag "localhost/slicemeter-$part:$version" --file Containerfile .
  rm -f "build/images/$part.tar"
  # shellcheck disable=SC2086
  buildah ${BUILDAH_FLAGS:-} push --quiet "localhost/slicemeter-$part:$version" "docker-archive:build/images/$part.tar:slicemeter-$part:$version"
  du -k "build/images/$part.tar"
done

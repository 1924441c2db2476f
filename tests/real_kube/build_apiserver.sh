#!/bin/sh
# Builds a genuine kube-apiserver from Go modules into a cache outside the tree, once per version.
#
# Kubernetes is not meant to be required as a module: its own go.mod names its staging modules
# as v0.0.0. So we write a module that requires k8s.io/kubernetes and replaces each of them by
# the published module of the same release, and build cmd/kube-apiserver from there.
#
# usage: build_apiserver.sh [FOLDER]   prints the path of the program as its last line
set -eu

VERSION=${KUBE_VERSION:-1.34.4}
CACHE=${1:-${SLICEMETER_KUBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slicemeter/kube-apiserver}}
PROGRAM=$CACHE/kube-apiserver-$VERSION

if [ -x "$PROGRAM" ]; then
    echo "$PROGRAM"
    exit 0
fi
command -v go >/dev/null || {
    echo "build_apiserver.sh: go is not on PATH; install Go 1.24 or newer, or put a kube-apiserver there as $PROGRAM" >&2
    exit 1
}

MODULE=$CACHE/module-$VERSION
STAGING=0.${VERSION#1.}
mkdir -p "$MODULE"
cd "$MODULE"
started=$(date +%s)

printf 'module slicemeter-real-kube\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v%s\n' "$VERSION" >go.mod
printf 'package tools\n\nimport _ "k8s.io/kubernetes/cmd/kube-apiserver/app"\n' >tools.go
source=$(go mod download -json "k8s.io/kubernetes@v$VERSION" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
for name in $(sed -n 's/^[[:space:]]*\(k8s\.io\/[a-z-]*\) v0\.0\.0$/\1/p' "$source" | sort -u); do
    go mod edit -replace "$name=$name@v$STAGING"
done
GOFLAGS=-mod=mod go mod tidy >tidy.log 2>&1 || { tail -20 tidy.log >&2; exit 1; }
echo "modules resolved after $(($(date +%s) - started)) s; compiling" >&2

# Without a version the server calls itself v0.0.0, and kubectl and the discovery believe it.
CGO_ENABLED=0 GOFLAGS="-mod=mod ${KUBE_BUILD_FLAGS:-}" nice -n 15 go build -trimpath \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$VERSION -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(echo "$VERSION" | cut -d. -f2)" \
    -o "$PROGRAM.part" k8s.io/kubernetes/cmd/kube-apiserver
mv "$PROGRAM.part" "$PROGRAM"
echo "kube-apiserver $VERSION: built in $(($(date +%s) - started)) s, $(wc -c <"$PROGRAM") bytes" >&2
echo "$PROGRAM"

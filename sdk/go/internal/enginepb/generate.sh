#!/bin/sh
# Writes engine.pb.go: generate.sh <buf> <engine.proto> <directory to write to>
set -eu
buf=$1 proto=$2 out=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/millrace/sdk/v1"
sed -e 's/^package workflow\.v1;/package millrace.sdk.v1;/' \
	-e '/^option java_/d' \
	-e 's#^option go_package = .*#option go_package = "github.com/millrace/millrace/sdk/go/internal/enginepb";#' \
	"$proto" >"$work/millrace/sdk/v1/engine.proto"
printf 'version: v2\n' >"$work/buf.yaml"
# The oldest release of protobuf that the module accepts.
cat >"$work/buf.gen.yaml" <<'GEN'
version: v2
plugins:
  - local: [go, run, google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11]
    out: gen
    opt: module=github.com/millrace/millrace/sdk/go/internal/enginepb
GEN
(cd "$work" && "$buf" generate)
cp "$work/gen/engine.pb.go" "$out/engine.pb.go"

# syntax=docker/dockerfile:1
# The image of the millrace binary: one static file, run by an unprivileged user.
#
# Programs of the executor "process" run inside this image, so derive from it to
# bring what they need:
#
#   FROM millrace:dev
#   USER root
#   RUN apt-get update && apt-get install -y --no-install-recommends python3
#   USER 10001:10001

FROM golang:1.26.4-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
# deploy/image_test.go runs this very command.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/millrace/millrace/internal/build.version=${VERSION}" -o /out/millrace ./cmd/millrace

FROM debian:bookworm-20251229-slim
RUN useradd --system --uid 10001 --user-group --create-home --home-dir /var/lib/millrace millrace
# Authorities for TLS to brokers and databases whose certificates are public.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/millrace /usr/local/bin/millrace
ENV MILLRACE_DATA_DIR=/var/lib/millrace
USER 10001:10001
VOLUME /var/lib/millrace
EXPOSE 8080 9090 9091
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=6 CMD ["/usr/local/bin/millrace", "ready"]
ENTRYPOINT ["/usr/local/bin/millrace"]
CMD ["serve"]

# The images of Lockstep: a cell's member, and the operator.
#
#   docker build --target cell -t lockstep-cell .
#   docker build --target operator -t lockstep-operator .
#
# linux/amd64 with glibc: the RocksDB binding brings its compiled form for that. RUN_BASE needs /usr/local/bin/node (24),
# libstdc++ and CA certificates, and no shell; BUILD_BASE also npm.
ARG BUILD_BASE=docker.io/library/node:24-bookworm-slim
ARG RUN_BASE=docker.io/library/node:24-bookworm-slim

FROM ${BUILD_BASE} AS source
# A file in the build container with more certificate authorities, for registries behind a proxy that has its own.
ARG NODE_EXTRA_CA_CERTS
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
COPY proto/package.json proto/
COPY gateway/package.json gateway/
COPY client/package.json client/
COPY cell/package.json cell/
COPY cli/package.json cli/
COPY cli/bin cli/bin
COPY operator/package.json operator/
COPY test/package.json test/
COPY bench/package.json bench/
COPY e2e/package.json e2e/
# No install scripts: nothing of what the images hold needs one (the RocksDB binding is compiled already).
RUN npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
COPY LICENSE ./
COPY scripts/build.ts scripts/
COPY scripts/build scripts/build
COPY proto proto
COPY gateway gateway

FROM source AS build-cell
COPY client client
COPY cell cell
COPY cli cli
# The folder for data exists with its owner already: a volume mounted there without one takes it over.
RUN node scripts/build.ts --image cell --into /out/app && mkdir -p /out/data

FROM source AS build-operator
COPY operator operator
RUN node scripts/build.ts --image operator --into /out/app

FROM ${RUN_BASE} AS run
LABEL org.opencontainers.image.vendor="Lockstep" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV NODE_ENV=production \
    PATH=/app/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /app
USER 65532:65532
STOPSIGNAL SIGTERM

FROM run AS operator
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="lockstep-operator" \
      org.opencontainers.image.description="Runs Lockstep cells as Kubernetes resources" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build-operator /out/app /app
EXPOSE 8081
# Few objects are young at a time: a larger young generation would only be resident.
ENTRYPOINT ["node", "--max-semi-space-size=4", "/app/dist/main.js"]

FROM run AS cell
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="lockstep-cell" \
      org.opencontainers.image.description="One member of a Lockstep cell, and the lockstep command" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build-cell --chown=65532:65532 /out/data /var/lib/lockstep
COPY --from=build-cell /out/app /app
EXPOSE 7400 7401 7402 7403 7404
# glibc's allocator keeps less for nobody: a sixth of a member's memory.
ENV MALLOC_ARENA_MAX=2 \
    MALLOC_MMAP_THRESHOLD_=131072
# A young generation of 16 MB: more would be given to garbage that is short-lived anyway, and a member shares its node.
# The second flag: what outlived one large batch is no sign that its like will (cli/src/commands/cell-program.ts).
ENTRYPOINT ["node", "--max-semi-space-size=16", "--no-allocation-site-pretenuring", "/app/dist/main.js"]

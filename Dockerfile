# Callboard's server, and what installs its pipe. compose.yaml builds it; by hand: docker build --tag callboard .
#
# tests/test_deployment.py lints it with hadolint, builds its wheel and runs its health check. No container engine was
# at hand, so no image was ever built from it.
#
# `docker buildx imagetools inspect python:3.12-slim-bookworm` prints the newest digest.
FROM python:3.12-slim-bookworm@sha256:54c85f3c47607a77f32adec749d3c81d1348bf25833671f512b26a9b6d778cb3 AS base

FROM base AS build
# Which lock of requirements/ is installed: "all", or "server" without the other frameworks, PostgreSQL and Redis.
ARG SCOPE=all
WORKDIR /src
COPY requirements/ requirements/
RUN python -m venv /opt/callboard && /opt/callboard/bin/pip install --no-cache-dir --no-deps --require-hashes \
    --requirement "requirements/${SCOPE}.txt"
COPY pyproject.toml README.md LICENSE ./
COPY server/ server/
COPY shared/ shared/
COPY pipe/ pipe/
COPY scripts/install_pipe.py scripts/
RUN /opt/callboard/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM base
RUN useradd --create-home --uid 10001 callboard && install --directory --owner=callboard --mode=700 /data
COPY --from=build /opt/callboard/ /opt/callboard/
ENV PATH=/opt/callboard/bin:$PATH \
    CALLBOARD_HOST=0.0.0.0 \
    CALLBOARD_PORT=8700 \
    CALLBOARD_DATA_DIR=/data
USER 10001
WORKDIR /home/callboard
VOLUME /data
EXPOSE 8700
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["python", "-c", "import http.client, os; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['CALLBOARD_PORT']), timeout=4); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["callboard"]
CMD ["serve"]

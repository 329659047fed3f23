# The image of deploy/server and deploy/extender:
#
#   docker build -t fettle-scheduler:0.1.0 .
#
# It runs as nobody in particular, writes no file, and needs no writable file system.
# `make base` adds the digest that the tag means then, so that the image is always built on the same.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS build
WORKDIR /src

# Every package is checked against its hash in the lock; of these, only what Fettle needs at run time
# goes into the image.
COPY requirements.lock ./
RUN pip wheel --no-cache-dir --require-hashes --requirement requirements.lock --wheel-dir /wheels \
    && pip install --no-cache-dir --no-index --find-links /wheels hatchling

COPY pyproject.toml README.md LICENSE ./
COPY fettle fettle
COPY extender extender
COPY webhook webhook
COPY certs certs
COPY deploy/webhook deploy/webhook
COPY deploy/scheduler deploy/scheduler
RUN python -m hatchling build --target wheel --directory /wheels \
    && python -m venv /opt/fettle \
    && /opt/fettle/bin/pip install --no-cache-dir --no-index --find-links /wheels fettle-scheduler

FROM ${BASE}
COPY --from=build /opt/fettle /opt/fettle
# HOME: the Kubernetes client ends at once where it finds neither that nor the user in /etc/passwd.
# FETTLE_SERVER: commands in a container ask the Fettle that runs there. One that reads the cluster itself
# takes as much memory as a server, under the same limit.
ENV PATH=/opt/fettle/bin:$PATH HOME=/ PYTHONDONTWRITEBYTECODE=1 \
    FETTLE_SERVER="http://127.0.0.1:8090 http://127.0.0.1:8091"
USER 65532:65532
ENTRYPOINT ["fettle"]
CMD ["serve"]

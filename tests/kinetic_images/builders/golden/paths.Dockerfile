FROM 127.0.0.1:5000/base/python@sha256:0000000000000000000000000000000000000000000000000000000000000000 AS install
USER 0:0
RUN --mount=type=bind,source=install,target=/run/kinetic/install \
    --mount=type=cache,id=kinetic-uv,target=/run/kinetic/cache \
    --mount=type=secret,id=netrc,target=/run/kinetic/netrc \
    --mount=type=secret,id=ca,target=/run/kinetic/ca \
    python3 -I /run/kinetic/install/install.py /run/kinetic /opt/kn 3.11

FROM 127.0.0.1:5000/base/python@sha256:0000000000000000000000000000000000000000000000000000000000000000
COPY --from=install /opt/kn /opt/kn
COPY ["files/0", "/app/\\$x"]
COPY ["files/1", "/app/\\\\y"]
COPY ["files/2", "/app/a b"]
COPY ["files/3", "/usr/local/lib/python3.11/dist-packages/000_kn.pth"]
COPY ["files/4", "/usr/local/lib/python3.11/site-packages/000_kn.pth"]
ENV PATH=/opt/kn/bin:$PATH

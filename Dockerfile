# The compiler with a C compiler and ONNX Runtime to compare with:
#
#   docker build -t halotile .
#   docker run --rm --entrypoint halotile-demo halotile                    SqueezeNet, built, compared, run
#   docker run --rm -v "$PWD:/work" halotile build model.onnx -o out/model
#   docker run --rm -v "$PWD:/work" halotile run out/model
#
# What was compiled once stays in the volume /cache: -v halotile-cache:/cache
FROM python:3.12-slim

RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

COPY . /src
RUN pip install --no-cache-dir '/src[verify,cross]' && rm -rf /src \
    && printf '#!/bin/sh\nexec python -m halotile.benchmarks.demo "$@"\n' > /usr/local/bin/halotile-demo \
    && chmod +x /usr/local/bin/halotile-demo \
    && useradd --create-home user && mkdir /cache /work && chown user /cache /work

USER user
ENV HALOTILE_CACHE=/cache ZIG_GLOBAL_CACHE_DIR=/cache/zig PYTHONUNBUFFERED=1
VOLUME /cache
WORKDIR /work
ENTRYPOINT ["halotile"]
CMD ["--help"]

# The image of every dyad process.
#
#   docker build -t dyad:cpu --build-arg COMMIT=$(git rev-parse HEAD) .
#   docker build -t dyad:cuda --build-arg VARIANT=cuda .       with the CUDA libraries (about 5 GB)

# --- built from source ---
FROM rust:1.95.0-bookworm AS build
ARG VARIANT=cpu
# The image's own toolchain, without the components that only development needs.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3 python3-pip \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# First what changes least: libtorch is fetched once, however often the sources change.
COPY trainer/libtorch trainer/libtorch
COPY trainer/src/shim/guarded.hpp trainer/src/shim/nccl.cpp trainer/src/shim/graph.cpp trainer/src/shim/flash.cpp \
    trainer/src/shim/memory.cpp trainer/src/shim/
RUN if [ "$VARIANT" = cuda ]; then trainer/libtorch/setup.py --gpu; else trainer/libtorch/setup.py; fi
COPY . .
# The commit that `dyad_build_info` shows: the sources come without git.
ARG COMMIT=
ENV DYAD_COMMIT=$COMMIT
RUN cargo build --release --locked --package agents --bins \
    && mkdir -p /out/bin /out/lib/dyad /out/gpu \
    && cp target/release/dyad target/release/dyad-full /out/bin/ \
    && cp -P .libtorch/view/lib/*.so* /out/lib/dyad/ \
    && rm /out/lib/dyad/libtorch.so \
    && if [ "$VARIANT" = cuda ]; then mv .libtorch/gpu/* /out/gpu/; fi \
    && rm -rf target

# --- what runs ---
FROM debian:bookworm-slim AS runtime
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/dyad --create-home dyad \
    && install -d -o dyad -g dyad /var/lib/dyad/runs
COPY --from=build /out /opt/dyad
COPY agents/container/healthy.sh /opt/dyad/bin/healthy
COPY configs/*.toml /configs/
# `dyad init` and `dyad run NAME` look beside the program.
RUN ln -s /configs /opt/dyad/bin/configs
# One torch thread per actor: parallelism comes from the actors. The CUDA library is opened at run
# time if it is installed: its allocator leaves few gaps, and attention avoids cuDNN, which
# plans each new shape slowly.
ENV PATH=/opt/dyad/bin:$PATH \
    OMP_NUM_THREADS=1 \
    TORCH_CUDNN_SDPA_DEPRIORITIZED=1 \
    DYAD_LIBTORCH_CUDA=/opt/dyad/gpu/torch/lib/libtorch_cuda.so \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER dyad
WORKDIR /var/lib/dyad
VOLUME /var/lib/dyad/runs
ENTRYPOINT ["dyad"]
CMD ["--help"]

# The program vireo, built for the CPU from a clone:
#   docker build -t vireo .
#   docker run --rm -v "$PWD:/here" -w /here vireo run --checkpoint models/tiny --image YOUR.png --prompt "What is this?"
# Published checkpoints come from the local Hugging Face cache: -v ~/.cache/huggingface:/huggingface:ro
# SPDX-License-Identifier: Apache-2.0
FROM debian:12-slim AS build
WORKDIR /vireo
COPY . .
RUN tools/setup build
RUN cmake --preset release -DVIREO_TESTS=OFF \
    && cmake --build --preset release \
    && cmake --install build/release --prefix /installed

FROM debian:12-slim
COPY --from=build /installed /usr/local
ENV HF_HOME=/huggingface
USER nobody
ENTRYPOINT ["vireo"]

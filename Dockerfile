# Two stages: what builds stays behind. The image has the package with both frameworks (CPU), at the locked versions.
#
#   docker build --tag benchback .
#   docker run --rm benchback list
#   mkdir -p runs   # docker would make it a folder of root; the image's user is 1000
#   docker run --rm --volume "$PWD/runs:/home/benchback/runs" benchback run smoke
FROM python:3.11-slim AS build

RUN python -m venv /opt/benchback
ENV PATH=/opt/benchback/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# torch first and alone, and from the index of CPU builds: PyPI's build for Linux brings gigabytes of CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --index-url "$TORCH_INDEX" torch==2.13.0

WORKDIR /source
COPY pyproject.toml requirements.lock MANIFEST.in README.md LICENSE ./
COPY src src
# The lock file as constraints: its versions, without the tools of development that it also lists.
RUN pip install --constraint requirements.lock '.[all,tensorboard]'

FROM python:3.11-slim

# torch.compile, PyTorch's default mode here, calls a C++ compiler while it runs.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

# The user owns its home alone: runs, compiled programs and proofs of parity are kept there.
RUN useradd --create-home --uid 1000 benchback
COPY --from=build /opt/benchback /opt/benchback
ENV PATH=/opt/benchback/bin:$PATH PYTHONUNBUFFERED=1
USER benchback
WORKDIR /home/benchback
RUN mkdir runs

ENTRYPOINT ["benchback"]
CMD ["--help"]

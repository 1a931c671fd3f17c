"""Presets for `--model`: how much a training job of a published model sends per iteration.

`bytes_per_iteration` is the size of all gradients, parameters times bytes per gradient (4: single
precision, 2: half precision). That is what each of two workers sends per iteration in a ring
all-reduce; each of n workers sends 2 (n - 1) / n times as much.

`compute_s` is an estimate, not a measurement: the arithmetic of one forward and backward pass over
the batch named here, divided by SUSTAINED_FLOPS. A convolutional network needs 3 times its forward
pass (2 operations per multiply-add), a transformer 6 operations per parameter and token. Where the
true compute time of a job is known, give it with `--compute`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from mltcp_tools.errors import UsageError

# What one accelerator keeps up over a whole pass; of the order of a data-centre GPU of 2017-2018
# in single precision.
SUSTAINED_FLOPS = 10e12


@dataclass(frozen=True)
class Model:
    """A preset. `work` is the number of floating-point operations of one training step."""

    parameters: int
    bytes_per_gradient: int
    work: float
    batch: str
    source: str

    @property
    def bytes_per_iteration(self) -> int:
        """Size of all gradients in bytes."""
        return self.parameters * self.bytes_per_gradient

    @property
    def compute_s(self) -> float:
        """Estimated seconds of compute per iteration."""
        return self.work / SUSTAINED_FLOPS


def _convolutional(parameters: int, multiply_adds: float, images: int, source: str) -> Model:
    return Model(parameters, 4, 3 * 2 * multiply_adds * images, f"{images} images", source)


def _transformer(
    parameters: int, bytes_per_gradient: int, sequences: int, tokens: int, source: str
) -> Model:
    return Model(
        parameters,
        bytes_per_gradient,
        6.0 * parameters * sequences * tokens,
        f"{sequences} sequences of {tokens} tokens",
        source,
    )


def _layers(*widths: int) -> int:
    """Parameters (weights and biases) of fully connected layers of these widths."""
    return sum(a * b + b for a, b in itertools.pairwise(widths))


# Of DLRM only the two dense networks are all-reduced, the embedding tables stay where they are. The
# sizes are those of the MLPerf benchmark on Criteo 1TB: 13 dense features, 26 tables of width 128.
_DLRM_DENSE = _layers(13, 512, 256, 128) + _layers(128 + 27 * 26 // 2, 1024, 1024, 512, 256, 1)

MODELS: dict[str, Model] = {
    "alexnet": _convolutional(
        60_000_000, 0.72e9, 128, "Krizhevsky et al., ImageNet Classification with Deep CNNs, 2012"
    ),
    "vgg16": _convolutional(
        138_000_000, 15.5e9, 32, "Simonyan and Zisserman, Very Deep Convolutional Networks, 2014"
    ),
    "vgg19": _convolutional(
        144_000_000, 19.6e9, 32, "Simonyan and Zisserman, Very Deep Convolutional Networks, 2014"
    ),
    "resnet50": _convolutional(
        25_600_000, 3.8e9, 32, "He et al., Deep Residual Learning for Image Recognition, 2015"
    ),
    "bert-base": _transformer(
        110_000_000, 4, 32, 128, "Devlin et al., BERT: Pre-training of Deep Transformers, 2018"
    ),
    "bert-large": _transformer(
        340_000_000, 4, 32, 128, "Devlin et al., BERT: Pre-training of Deep Transformers, 2018"
    ),
    "roberta-large": _transformer(
        355_000_000, 4, 8, 512, "Liu et al., RoBERTa: A Robustly Optimized BERT Approach, 2019"
    ),
    "gpt2": _transformer(
        1_500_000_000, 2, 2, 1024, "Radford et al., Language Models are Unsupervised Learners, 2019"
    ),
    "dlrm": Model(
        _DLRM_DENSE,
        4,
        6.0 * _DLRM_DENSE * 2048,
        "2048 samples",
        "Naumov et al., Deep Learning Recommendation Model, 2019 (dense part, sizes of MLPerf)",
    ),
}


def resolve(
    model: str | None, bytes_per_iteration: int | None, compute_s: float | None
) -> tuple[int, float]:
    """Bytes and seconds per iteration: those given, else the model's. Raises UsageError."""
    preset = None
    if model is not None:
        if model not in MODELS:
            raise UsageError(f"There is no model {model!r}; choose one of {', '.join(MODELS)}.")
        preset = MODELS[model]
    if bytes_per_iteration is None:
        if preset is None:
            raise UsageError("How much to send is missing; give --bytes or --model.")
        bytes_per_iteration = preset.bytes_per_iteration
    if compute_s is None:
        if preset is None:
            raise UsageError("The compute time is missing; give --compute or --model.")
        compute_s = preset.compute_s
    return bytes_per_iteration, compute_s

"""What is measured and predicted: programs with their batch, optimizer and precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Combination:
    program: str
    """File in this folder, without its suffix."""
    factory: str
    """Function that returns the model."""
    batch: int
    optimizer: str
    dtype: str
    kind: str
    """Of the network: MLP, CNN, Transformer, RNN."""
    is_compiled: bool = False
    is_checkpointed: bool = False
    """Whether the model recomputes activations; it is part of the model."""

    @property
    def is_user_style(self) -> bool:
        """Whether it was written before the formula, and is not used to fix it."""
        return self.program.startswith("user_")

    @property
    def name(self) -> str:
        if self.is_user_style:
            return self.program
        compiled = "-compiled" if self.is_compiled else ""
        return f"{self.program}-{self.factory}-{self.dtype}-{self.optimizer}-{self.batch}{compiled}"

    @property
    def command(self) -> list[str]:
        """The program's file and its options."""
        if self.is_user_style:
            return [f"{self.program}.py", "--batch", str(self.batch)]
        words = ["train.py", f"{self.program}:{self.factory}", "--batch", str(self.batch)]
        words += ["--optimizer", self.optimizer, "--dtype", self.dtype]
        return words + ["--compile"] * self.is_compiled

    def tiny(self) -> Combination:
        """The same for a machine without a GPU."""
        return replace(self, batch=2, is_compiled=False)


CALIBRATION = (
    Combination("mlp", "wide", 4096, "sgd", "fp32", "MLP"),
    Combination("mlp", "wide", 16384, "adam", "fp32", "MLP"),
    Combination("mlp", "wide", 65536, "adamw", "bf16", "MLP"),
    Combination("mlp", "deep", 16384, "momentum", "fp32", "MLP"),
    Combination("mlp", "deep_checkpointed", 65536, "adam", "bf16", "MLP", is_checkpointed=True),
    Combination("mlp", "deep", 16384, "adam", "fp32", "MLP", is_compiled=True),
    Combination("cnn", "small", 64, "sgd", "fp32", "CNN"),
    Combination("cnn", "large", 128, "adam", "fp32", "CNN"),
    Combination("cnn", "large", 256, "momentum", "bf16", "CNN"),
    Combination("cnn", "large_checkpointed", 128, "adam", "fp32", "CNN", is_checkpointed=True),
    Combination("cnn", "large", 128, "adamw", "bf16", "CNN", is_compiled=True),
    Combination("transformer", "small", 16, "sgd", "fp32", "Transformer"),
    Combination("transformer", "small", 64, "adam", "fp32", "Transformer"),
    Combination("transformer", "large", 16, "adamw", "bf16", "Transformer"),
    Combination(
        *("transformer", "large_checkpointed", 32, "adamw", "bf16", "Transformer"),
        is_checkpointed=True,
    ),
    Combination("transformer", "large", 16, "adamw", "bf16", "Transformer", is_compiled=True),
    Combination("rnn", "lstm", 256, "adam", "fp32", "RNN"),
    Combination("rnn", "lstm", 512, "adam", "bf16", "RNN"),
    Combination("rnn", "gru", 512, "sgd", "fp32", "RNN"),
)
USER_STYLE = (
    Combination("user_vit", "make_model", 128, "adamw", "bf16", "Transformer"),
    Combination("user_gpt", "make_model", 12, "adamw", "bf16", "Transformer"),
    Combination("user_lstm_lm", "make_model", 80, "sgd", "fp32", "RNN"),
    Combination("user_resnet", "make_model", 128, "momentum", "fp32", "CNN"),
    Combination("user_unet", "make_model", 32, "adam", "bf16", "CNN"),
    Combination("user_tabular", "make_model", 16384, "adam", "fp32", "MLP"),
    Combination("user_bert", "make_model", 32, "adamw", "fp32", "Transformer"),
    Combination("user_vae", "make_model", 256, "adam", "fp32", "CNN"),
    Combination("user_accumulate", "make_model", 16, "adam", "bf16", "Transformer"),
    Combination(
        *("user_checkpointed", "make_model", 4, "adamw", "bf16", "Transformer"),
        is_checkpointed=True,
    ),
    Combination("user_compiled", "make_model", 192, "adamw", "bf16", "MLP", is_compiled=True),
    Combination("user_lora", "make_model", 8, "adamw", "bf16", "Transformer"),
    Combination("user_seq2seq", "make_model", 256, "adam", "fp32", "RNN"),
    Combination("user_speech", "make_model", 64, "momentum", "fp32", "RNN"),
)

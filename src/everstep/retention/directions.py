"""Which way a metric is best, where its name tells."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["Direction", "known_direction"]

Direction = Literal["min", "max"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LOW = frozenset({
    "bpb", "bpc", "bpd", "brier", "cer", "cost", "deviance", "distance", "divergence", "eer", "entropy",
    "epe", "err", "error", "errors", "fid", "fpr", "fvd", "kid", "kl", "latency", "logloss", "loss",
    "losses", "lpips", "mae", "mape", "mse", "msle", "nll", "nmse", "nrmse", "perplexity", "ppl", "regret",
    "rmse", "rmsle", "rse", "smape", "ter", "violations", "wer",
})  # fmt: skip
_HIGH = frozenset({
    "acc", "accuracy", "ap", "auc", "aucpr", "auprc", "auroc", "bertscore", "bleu", "cider", "chrf", "dice",
    "elo", "f1", "fbeta", "iou", "kappa", "likelihood", "mcc", "meteor", "miou", "mrr", "ndcg", "pearson",
    "precision", "psnr", "r2", "recall", "return", "returns", "reward", "rewards", "roc", "rouge", "score",
    "scores", "sensitivity", "spearman", "specificity", "spice", "ssim", "success",
})  # fmt: skip
_TURNED = frozenset({"anti", "inv", "inverse", "minus", "neg", "negative", "negated", "non", "one"})
"""With one of these, as in scikit-learn's ``neg_mean_squared_error``, a name may mean its opposite."""


def known_direction(metric: str) -> Direction | None:
    """``min`` for losses and errors, ``max`` for accuracies and scores; None where the name does not tell.

    The name is taken apart at signs and capitals: ``valLoss``, ``eval/loss`` and ``val_loss`` are alike.
    """
    words = {word.lower() for word in _WORD.findall(metric)} | set(re.split(r"[^a-z0-9]+", metric.lower()))
    low = bool(words & _LOW) or any(word.endswith(("loss", "error")) for word in words)
    high = bool(words & _HIGH) or any(word.endswith(("accuracy", "reward", "score")) for word in words)
    if low == high or words & _TURNED:
        return None
    return "min" if low else "max"

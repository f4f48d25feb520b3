"""Evaluations that the tests name."""

import numpy as np


def follows(model):
    """How often the most probable token after 1 is 2."""
    logits = np.asarray(model.logits(np.ones((1, 4), np.int32)))
    assert logits.shape == (1, 4, 32)
    return {"step": model.step, "share": float((logits.argmax(-1) == 2).mean())}


def fails_after_12(model):
    if model.step > 12:
        raise ValueError("I can't judge this")
    return {"step": model.step, "unknown": np.nan}


def ends_after_12(model):
    """Ends the training in its middle."""
    if model.step > 12:
        raise SystemExit("I can't judge this")
    return {"step": model.step}


def greedy(model):
    """Changes the tree that it is given."""
    params = model.params
    params["norm"] = 0 * params["norm"]
    params["layers"].pop()
    return {"left": len(params.pop("lm_head"))}


def wrong(model):
    return 3

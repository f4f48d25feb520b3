"""What accelerators can compute at most, as their makers state it: floating-point operations per second.

Dense throughput, sums in float32, of what JAX calls one device. A kind that is not here has no known peak: a slice of a
GPU, a laptop's variant of it, a CPU.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Arithmetic: TypeAlias = Literal["bfloat16", "tensorfloat32", "float32"]
"""How a matrix product is computed: with operands of bfloat16; with float32 rounded to 10 bits; or as it is."""

_TERA = 1e12


class _Peaks(NamedTuple):
    bfloat16: float | None
    tensorfloat32: float | None
    float32: float | None


# NVIDIA's data sheets state some figures with 2:4 sparsity only: half of those is the dense throughput.
_GPUS = {
    # "NVIDIA Tesla V100 GPU Accelerator" data sheet; the chip has no bfloat16
    "Tesla V100-SXM2-16GB": _Peaks(None, None, 15.7),
    "Tesla V100-SXM2-32GB": _Peaks(None, None, 15.7),
    "Tesla V100-PCIE-16GB": _Peaks(None, None, 14.0),
    "Tesla V100-PCIE-32GB": _Peaks(None, None, 14.0),
    # "NVIDIA T4 Tensor Core GPU" data sheet; no bfloat16
    "Tesla T4": _Peaks(None, None, 8.1),
    # "NVIDIA A100 Tensor Core GPU" data sheet; the same for SXM and PCIe
    "NVIDIA A100-SXM4-40GB": _Peaks(312, 156, 19.5),
    "NVIDIA A100-SXM4-80GB": _Peaks(312, 156, 19.5),
    "NVIDIA A100-PCIE-40GB": _Peaks(312, 156, 19.5),
    "NVIDIA A100 80GB PCIe": _Peaks(312, 156, 19.5),
    # "NVIDIA A30 Tensor Core GPU" data sheet
    "NVIDIA A30": _Peaks(165, 82, 10.3),
    # "NVIDIA A40" data sheet
    "NVIDIA A40": _Peaks(149.7, 74.8, 37.4),
    # "NVIDIA A10 Tensor Core GPU" data sheet
    "NVIDIA A10": _Peaks(125, 62.5, 31.2),
    # "NVIDIA A10G Tensor Core GPU" data sheet
    "NVIDIA A10G": _Peaks(70, 35, 35),
    # "NVIDIA Ampere GA102 GPU Architecture" white paper, appendix A: GeForce RTX 3090
    "NVIDIA GeForce RTX 3090": _Peaks(71, 35.6, 35.6),
    # "NVIDIA L4 Tensor Core GPU" data sheet (with sparsity: 242 and 120)
    "NVIDIA L4": _Peaks(121, 60, 30.3),
    # "NVIDIA L40" data sheet
    "NVIDIA L40": _Peaks(181.05, 90.5, 90.5),
    # "NVIDIA L40S" data sheet
    "NVIDIA L40S": _Peaks(362.05, 183, 91.6),
    # "NVIDIA Ada GPU Architecture" white paper, appendix A: GeForce RTX 4090
    "NVIDIA GeForce RTX 4090": _Peaks(165.2, 82.6, 82.6),
    # "NVIDIA H100 Tensor Core GPU" data sheet: SXM (with sparsity: 1,979 and 989)
    "NVIDIA H100 80GB HBM3": _Peaks(989.5, 494.5, 67),
    # The same data sheet, first edition: PCIe (with sparsity: 1,513 and 756)
    "NVIDIA H100 PCIe": _Peaks(756.5, 378, 51),
    # The same data sheet: NVL (with sparsity: 1,671 and 835)
    "NVIDIA H100 NVL": _Peaks(835.5, 417.5, 60),
    # "NVIDIA H200 Tensor Core GPU" data sheet: SXM, then NVL (with sparsity as H100)
    "NVIDIA H200": _Peaks(989.5, 494.5, 67),
    "NVIDIA H200 NVL": _Peaks(835.5, 417.5, 60),
    # "NVIDIA HGX Platform" specifications: HGX B200 of eight GPUs (with sparsity: 36,000); the others are not sure
    "NVIDIA B200": _Peaks(2250, None, None),
}

# "Cloud TPU documentation, system architecture", one page for each version: peak compute per chip in bfloat16. Of v2,
# v3 and 7x a device of JAX is one of the chip's two cores. No figure is stated for float32.
_TPUS = {
    "TPU v2": _Peaks(46 / 2, None, None),
    "TPU v3": _Peaks(123 / 2, None, None),
    "TPU v4": _Peaks(275, None, None),
    "TPU v5 lite": _Peaks(197, None, None),
    "TPU v5e": _Peaks(197, None, None),
    "TPU v5": _Peaks(459, None, None),
    "TPU v5p": _Peaks(459, None, None),
    "TPU v6 lite": _Peaks(918, None, None),
    "TPU v6e": _Peaks(918, None, None),
    "TPU7x": _Peaks(2307 / 2, None, None),
}

_PEAKS = _GPUS | _TPUS


def peak_flops(device_kind: str, arithmetic: Arithmetic) -> float | None:
    """Of one device, by JAX's ``device.device_kind``; ``None`` if it is not known.

    >>> peak_flops("NVIDIA A100-SXM4-80GB", "bfloat16")
    312000000000000.0
    >>> peak_flops("cpu", "float32") is None
    True
    """
    if (peaks := _PEAKS.get(device_kind)) is None:
        return None
    peak = {
        "bfloat16": peaks.bfloat16,
        # where the format does not exist, the product is computed in float32
        "tensorfloat32": peaks.float32 if peaks.tensorfloat32 is None else peaks.tensorfloat32,
        "float32": peaks.float32,
    }[arithmetic]
    return None if peak is None else peak * _TERA

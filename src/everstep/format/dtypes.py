"""Names and sizes of element types, independent of torch, NumPy and jax."""

from __future__ import annotations

from typing import Final

__all__ = ["ITEM_BYTES", "SAFETENSORS_NAME"]

ITEM_BYTES: Final[dict[str, int]] = {
    "bool": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "float128": 16,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "complex256": 32,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e4m3b11fnuz": 1,
    "float8_e4m3": 1,
    "float8_e3m4": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "int4": 1,
    "uint4": 1,
    "int2": 1,
    "uint2": 1,
    "qint8": 1,
    "quint8": 1,
    "qint32": 4,
    "datetime64": 8,
    "timedelta64": 8,
}
"""Bytes of one stored element. A row-major shard of n elements has ``n * ITEM_BYTES[dtype]`` bytes."""

SAFETENSORS_NAME: Final[dict[str, str]] = {
    "bool": "BOOL",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}
"""The same type in a safetensors header; what is not here stands there as bytes (``U8``)."""

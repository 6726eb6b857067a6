"""Normalizes rows with RMSNorm from Python through the C library: ctypes alone, no package.

    python3 normalize.py path/to/libnormlab_c.so
"""

import ctypes as c
import math
import sys

FloatPointer = c.POINTER(c.c_float)


class ForwardArgs(c.Structure):  # normlab_forward_args of normlab.h
    _fields_ = [
        ("struct_size", c.c_size_t), ("rows", c.c_int64), ("cols", c.c_int64),
        ("x", FloatPointer), ("x_stride", c.c_int64), ("residual", FloatPointer), ("residual_stride", c.c_int64),
        ("weight", FloatPointer), ("bias", FloatPointer), ("alpha", FloatPointer),
        ("sum", FloatPointer), ("sum_stride", c.c_int64), ("y", FloatPointer), ("y_stride", c.c_int64),
        ("saved", FloatPointer), ("saved_elements", c.c_int64),
    ]


def main():
    library = c.CDLL(sys.argv[1])
    library.normlab_last_error.restype = c.c_char_p
    library.normlab_version.restype = c.c_char_p
    library.normlab_norm_set.argtypes = [c.c_void_p, c.c_char_p, c.c_double]
    library.normlab_norm_destroy.argtypes = [c.c_void_p]

    def must(status):
        if status != 0:
            raise RuntimeError(library.normlab_last_error().decode())

    norm = c.c_void_p()
    must(library.normlab_norm_create(b"rmsnorm", c.byref(norm)))
    must(library.normlab_norm_set(norm, b"eps", 0.0))

    rows, cols = 2, 3
    values = [3.0, 0.0, 4.0, -1.0, 1.0, 1.0]
    x, y = (c.c_float * 6)(*values), (c.c_float * 6)()
    args = ForwardArgs(struct_size=c.sizeof(ForwardArgs), rows=rows, cols=cols, x=x, y=y)
    must(library.normlab_norm_forward(norm, c.byref(args)))

    for r in range(rows):
        row = values[r * cols:(r + 1) * cols]
        rms = math.sqrt(sum(v * v for v in row) / cols)
        for have, want in zip(y[r * cols:(r + 1) * cols], (v / rms for v in row)):
            assert abs(have - want) <= 1e-6, (have, want)

    refused = library.normlab_norm_create(b"rmsnrom", c.byref(c.c_void_p()))
    assert refused == 1 and "rmsnorm" in library.normlab_last_error().decode()
    library.normlab_norm_destroy(norm)
    print(f"normlab {library.normlab_version().decode()}: y = {[round(v, 4) for v in y]}: right")


if __name__ == "__main__":
    main()

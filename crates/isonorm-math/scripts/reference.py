"""Generates tests/reference.txt: elementary functions at a few hundred points, to 106 bits.

    pip install mpmath
    python reference.py > ../tests/reference.txt

A line is `function type x high low`: x in the type's bits, and the value as the sum of two f64, in bits too.
"""

import random
import struct

from mpmath import erf, erfc, exp, mp, mpf, pi, sqrt, tanh

mp.prec = 400

FUNCTIONS = {
    "exp": exp,
    "tanh": tanh,
    "sigmoid": lambda x: 1 / (1 + exp(-x)),
    "erf": erf,
    "normal_cdf": lambda x: erfc(-x / sqrt(mpf(2))) / 2,
    "normal_pdf": lambda x: exp(-x * x / 2) / sqrt(2 * pi),
}

# Where values are normal numbers and not yet constant.
RANGES = {
    "f32": {
        "exp": (-87.3, 88.7),
        "tanh": (-9, 9),
        "sigmoid": (-87.3, 17),
        "erf": (-3.9, 3.9),
        "normal_cdf": (-12.9, 5.5),
        "normal_pdf": (-13, 13),
    },
    "f64": {
        "exp": (-708.3, 709.7),
        "tanh": (-19, 19),
        "sigmoid": (-708.3, 37),
        "erf": (-5.9, 5.9),
        "normal_cdf": (-37.5, 8.3),
        "normal_pdf": (-37.5, 37.5),
    },
}

POINTS = 160


def points(low, high):
    """Some over the whole range, some about 0, some tiny."""
    for i in range(POINTS):
        x = (
            random.uniform(low, high),
            random.uniform(-1.5, 1.5),
            random.gauss(0, 3),
            random.choice((-1, 1)) * 2.0 ** random.uniform(-60, 0),
        )[i % 4]
        yield min(max(x, low), high)


def main():
    random.seed(1)
    for kind, ranges in RANGES.items():
        for name, (low, high) in ranges.items():
            for x in points(low, high):
                if kind == "f32":
                    x = struct.unpack(">f", struct.pack(">f", x))[0]
                value = FUNCTIONS[name](mpf(x))
                upper = float(value)
                lower = float(value - mpf(upper))
                bits = struct.pack(">f" if kind == "f32" else ">d", x).hex()
                print(name, kind, bits, struct.pack(">d", upper).hex(), struct.pack(">d", lower).hex())


if __name__ == "__main__":
    main()

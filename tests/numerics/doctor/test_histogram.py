"""The histogram as text."""

from __future__ import annotations

from dataclasses import replace

import torch

from tilesmith.numerics.doctor.errors import WRONG, count_errors, histogram_lines
from tilesmith.numerics.doctor.findings import ErrorStatistics

NONE = ErrorStatistics("kernel", "out", torch.bfloat16, 0, 0, 0, 0, 0, 0, 0, {}, ())

EXPECTED = """\
       ulp  kernel              other
    <= 1/8   25.0%  #####            .
    <= 1/4       .                   .
    <= 1/2   50.0%  ##########   25.0%  #####
      <= 1   25.0%  #####        25.0%  #####
       > 1       .               <0.1%  #
NaN or inf       .               50.0%  ##########"""


def test_text_is_as_recorded():
    kernel = replace(NONE, histogram={-3: 1000, -1: 2000, 0: 1000})
    counts = {-1: 1000, 0: 999, 7: 1, WRONG: 2000}
    other = replace(NONE, implementation="other", histogram=counts)
    assert "\n".join(histogram_lines([kernel, other])) == EXPECTED


def test_empty_neighbours_share_a_line():
    far = replace(NONE, histogram={-3: 1, 0: 1, 5: 1, 6: 1})
    labels = [line.split()[1] for line in list(histogram_lines([far]))[1:]]
    assert labels == ["1/8", "1/2", "1", "16", "32", "64"]


def test_nothing_compared_is_nothing_to_show():
    assert list(histogram_lines([NONE])) == []


def test_counts_of_all_buckets_are_the_number_of_elements():
    ulps = torch.rand(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 99
    assert sum(count_errors(ulps).values()) == 1000

"""Lines of generated text lead back to the user's lines they come from."""

from __future__ import annotations

import pytest
import torch

from examples.attention import attention
from examples.softmax import softmax
from tilesmith.explore.origins import (
    NOWHERE,
    Column,
    Source,
    column_of_amdgcn,
    column_of_code,
    column_of_ir,
    column_of_ptx,
    column_of_sass,
)
from tilesmith.ir.traversal import walk_function

MODULE = "/tmp/made/softmax_0123456789abcdef.py"
EMITTED = Column(
    ["def _nan_max(a, b):", "    return", "def k():", "    x", "    y"], [-1, -1, -1, 0, 1]
)


@pytest.fixture(scope="module")
def attended():
    args = tuple(torch.randn(1, 2, 64, 32) for _ in range(3))
    bound = attention.bind(args)
    return bound, Source.of(attention.fn, bound.traced_function)


def text_at(source: Source, place: int) -> list[str]:
    return [source.lines[row].strip() for row in source.places[place]]


def test_the_source_has_the_kernel_and_what_it_calls(attended):
    _, source = attended
    text = "\n".join(source.lines)
    assert "def attention(" in text
    assert "def online_softmax_step(" in text
    first = next(i for i, line in enumerate(source.lines) if line.startswith("def attention("))
    assert source.labels[first].startswith("attention.py:")


def test_every_line_of_ir_has_the_place_of_its_op(attended):
    bound, source = attended
    column = column_of_ir(bound.function, source)
    ops = list(walk_function(bound.function))
    heads = [i for i, line in enumerate(column.lines) if "(" in line and "=" in line.split("(")[0]]
    assert len(column.lines) == len(column.places)
    placed = [place for place in column.places if place != NOWHERE]
    assert placed == [source.place(source.rows(op.loc)) for op in ops if source.rows(op.loc)]
    assert heads


def test_ops_of_a_helper_belong_to_its_line_and_to_the_callers(attended):
    bound, source = attended
    column = column_of_ir(bound.function, source)
    (line,) = [i for i, text in enumerate(column.lines) if 'kind="max"' in text]
    below, above = text_at(source, column.places[line])
    assert {"online_softmax_step" in below, "amax" in above} == {True}


def test_comments_of_emitted_code_lead_to_lines():
    bound = softmax.bind((torch.randn(8, 16),), target="cuda:90")
    source = Source.of(softmax.fn, bound.traced_function)
    text = bound._shown(output_origin_lines=True).to_artifact().source
    column = column_of_code(text, source)
    where = {line.strip(): place for line, place in zip(column.lines, column.places)}
    (store,) = [place for line, place in where.items() if line.startswith("tl.store")]
    assert "torch.nn.functional.softmax" in text_at(source, store)[0]
    assert where["import torch"] == NOWHERE
    assert where["pid = tl.program_id(0)"] != store


def test_ptx_leads_to_emitted_lines_past_helpers_and_library():
    text = "\n".join(
        [
            ".version 8.7",
            f"\t.loc\t1 4 2   // {MODULE}:4:2",
            "\tmov.u32 %r1, %tid.x;",
            "$L__tmp1:",
            f"\t.loc\t2 9 1   // /lib/standard.py:9:1 @[ {MODULE}:2:5 @[ {MODULE}:5:1 ] ]",
            "\tmax.f32 %f1, %f2, %f3;",
            "\t.section\t.debug_abbrev",
            "\t.b8 1",
        ]
    )
    column = column_of_ptx(text, EMITTED)
    assert [line.strip() for line in column.lines] == [
        ".version 8.7",
        "mov.u32 %r1, %tid.x;",
        "max.f32 %f1, %f2, %f3;",
    ]
    assert list(column.emitted) == [NOWHERE, 3, 4]
    assert list(column.places) == [NOWHERE, 0, 1]


def test_sass_leads_to_emitted_lines():
    text = "\n".join(
        [
            f'\t//## File "{MODULE}", line 4',
            "        /*0000*/                   LDC R1, c[0x0][0x28] ;",
            ".L_x_0:",
            f'\t//## File "/lib/standard.py", line 9 inlined at "{MODULE}", line 5',
            f'\t//## File "{MODULE}", line 5',
            "        /*0010*/               @P0 BRA `(.L_x_0) ;",
        ]
    )
    column = column_of_sass(text, EMITTED)
    assert column.lines == ["  LDC R1, c[0x0][0x28] ;", ".L_x_0:", "  @P0 BRA `(.L_x_0) ;"]
    assert list(column.emitted) == [3, NOWHERE, 4]


def test_amdgcn_has_the_lines_of_the_module():
    name = MODULE.rpartition("/")[2]
    text = "\n".join(
        [
            "k:                                      ; @k",
            ".Lfunc_begin0:",
            "\t.cfi_startproc",
            "; %bb.3:",
            '\t.file\t1 "/tmp/made" "softmax_0123456789abcdef.py"',
            f"\t.loc\t1 4 0 prologue_end             ; {name}:4:0",
            "\ts_load_dwordx2 s[2:3], s[0:1], 0x0",
            "\t.loc\t1 0 0 is_stmt 0                 ; :0:0",
            "\ts_nop 0",
            ".LBB0_0:",
            f"\t.loc\t2 293 36 is_stmt 1              ; standard.py:293:36 @[ {name}:5:26 ]",
            "\tv_max_f32_e32 v1, v5, v5",
            '\t.section\t.rodata,"a",@progbits',
            "\t.amdhsa_kernel k",
        ]
    )
    column = column_of_amdgcn(text, EMITTED)
    assert [line.split(" ")[0] or line.split()[0] for line in column.lines] == (
        ["k:", "s_load_dwordx2", "s_nop", ".LBB0_0:", "v_max_f32_e32"]
    )
    assert list(column.emitted) == [NOWHERE, 3, NOWHERE, NOWHERE, 4]
    assert list(column.places) == [NOWHERE, 0, NOWHERE, NOWHERE, 1]


def test_code_for_an_amd_gpu_is_linked_like_ptx():
    view = softmax.bind((torch.randn(64, 96),), target="hip:gfx942").explore().data["views"][0]
    (machine,) = view["machine"]
    assert machine["title"] == "AMDGCN"
    code = machine["text"].split("\n")
    loads = [place for line, place in zip(code, machine["places"]) if "global_load" in line]
    assert loads
    assert NOWHERE not in loads
    assert view["built"]["registers"] > 0
    assert view["built"]["spilled_bytes"] == 0

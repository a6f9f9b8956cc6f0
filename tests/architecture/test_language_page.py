"""The page of the language is fresh, and every test, case and mistake that it names exists."""

from __future__ import annotations

import ast
from dataclasses import fields
from functools import cache

import pytest

from tests.conformance.all_cases import CASES
from tests.errors.all_mistakes import CASES as MISTAKES
from tilesmith import language
from tilesmith.schedule.config import KEYS_BY_NAME, PLURALS
from tilesmith.setting_rules import REFUSED
from tilesmith.settings import Settings
from tools.generate_language_docs import FEATURES, OUTPUT, ROOT, Reference, read_features, render

SECTIONS = read_features(FEATURES.read_text(encoding="utf-8"))
EVERY = [feature for section in SECTIONS.values() for feature in section]
SETTING_NAMES = [field.name for field in fields(Settings)]
NAMES = {
    "case": {case.name for case in CASES},
    "mistake": {f"{topic}-{case.name}" for topic, cases in MISTAKES.items() for case in cases},
}


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def exists(reference: Reference) -> bool:
    if reference.kind in NAMES:
        return reference.name in NAMES[reference.kind]
    file, _, function = reference.name.partition("::")
    return (ROOT / file).exists() and function in functions_of(file)


def test_the_page_is_up_to_date():
    assert OUTPUT.read_text(encoding="utf-8") == render(), "run `make generated`"


@pytest.mark.parametrize("title", SECTIONS)
def test_what_the_page_names_exists(title):
    named = [reference for feature in SECTIONS[title] for reference in feature.shown_by]
    assert not [reference for reference in named if not exists(reference)]


def test_every_feature_is_shown_or_has_a_reason():
    assert len(EVERY) > 100
    assert not [f for f in EVERY if not f.text or bool(f.shown_by) == bool(f.reason)]
    texts = [feature.text for feature in EVERY]
    assert len(texts) == len(set(texts))


def test_what_does_not_exist_is_noticed():
    assert not exists(Reference("case", "no such case"))
    assert not exists(Reference("test", "tests/conformance/test_rejections.py::test_nothing"))
    with pytest.raises(ValueError, match="expected one of"):
        read_features("# a\nfeature | nothing at all")


def test_every_function_of_the_language_is_on_the_page():
    text = FEATURES.read_text(encoding="utf-8")
    assert not [name for name in language.__all__ if f"hl.{name}`" not in text]


def test_every_setting_and_every_key_is_on_the_page():
    text = FEATURES.read_text(encoding="utf-8")
    names = [*SETTING_NAMES, *KEYS_BY_NAME, *PLURALS]
    assert not [name for name in names if f"`{name}`" not in text]


def test_what_is_answered_with_a_reason_is_not_said_to_work():
    answered = [f.text for f in EVERY if f.reason]
    assert not [name for name in REFUSED if not any(f"`{name}`" in text for text in answered)]

"""Functions of a user's: at the top of a module, as they must be."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from marin.processing.cleaning.document_set import Document, Drop


def keep_all(document: Document) -> bool:
    del document
    return True


def keep_none(document: Document) -> bool | Drop:
    return Drop("odd") if len(document.text) % 2 else False


def keep_odd(document: Document) -> bool | Drop:
    return int(document.text.rsplit(" ", 1)[1]) % 2 == 1 or Drop("even")


def keep_odd_by_numpy(document: Document) -> Any:
    return np.array([int(document.text.rsplit(" ", 1)[1]) % 2 == 1]).all()


def shout(document: Document) -> str:
    return document.text.upper()


def without_a(document: Document) -> str:
    return document.text.replace("a", "")


def forgets_to_return(document: Document) -> Any:
    del document


def answers_half_a_character(document: Document) -> str:
    return document.text + "\ud800"


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Nothing:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def fails_without_words(document: Document) -> bool:
    raise SpeechlessError


def fails_with_half_a_character(document: Document) -> bool:
    raise ValueError(f"{document.text} \ud800")


def answers_what_can_not_be_shown(document: Document) -> Any:
    del document
    return Nothing()


def drops_for_half_a_character(document: Document) -> Drop:
    del document
    return Drop("\ud800")


def exits(document: Document) -> bool:
    raise SystemExit(0)


def ends_as_no_exception_does(document: Document) -> bool:
    raise GeneratorExit


def interrupts(document: Document) -> bool:
    raise KeyboardInterrupt


def fails_on_seven(document: Document) -> bool:
    return 10 / (int(document.text.rsplit(" ", 1)[1]) - 7) != 0


def counts_in_its_reasons(document: Document) -> Drop:
    return Drop(document.text)


def ends_its_process(document: Document) -> bool:
    if document.text == "poem 7":
        os._exit(9)
    return True


def tells_all_it_knows(document: Document) -> str:
    return f"{document.id} {document.source.rsplit('/', 1)[1]} {document.fields}"

"""The Policy page: what is in force, and, for stewards, an edited text that is checked and applied.

Checking writes nothing.  Applying asks for the password again, for exactly the text that was
checked, made of the file as it was, with each way accepted in which it protects less.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from starlette.responses import Response

from proxy.console.backend import Credentials
from proxy.console.pages import Asked, page
from proxy.domain import Attribute, Domain
from proxy.errors import Error, OperationalError, PolicyError
from proxy.policy import Policy, keys
from proxy.policy.kinds import decimal
from proxy.policy.weaker import UNLISTED
from proxy.privileges import AUDITOR, STEWARD, access, users_of
from proxy.steward import GuardReport, Review, Text, adopt, guards, me, review, text_of
from proxy.steward.spent import label

LONG = 12  # values of an attribute that are shown at once


@page(STEWARD, AUDITOR)
async def policy(asked: Asked) -> Response:
    """Show what is in force, and the file's text."""
    found = asked.dataset.policy
    return asked.render(
        "policy.html",
        policy=found,
        attributes=[_axis(attribute) for attribute in found.domain.attributes],
        measures=_measures(found),
        users=await asked.visit.thread(_users, found),
        guards=await _guards(asked),
        decimal=decimal,
        text=await asked.visit.thread(_text, found),
        schema=keys.json_schema() if asked.may(STEWARD) else {},
        changes=asked.may(STEWARD),
    )


@page(STEWARD)
async def check(asked: Asked) -> Response:
    """Say what is wrong with a text, or what applying it would change; nothing is written."""
    text, digest = _given(asked)
    found: Review = await asked.visit.thread(
        review, asked.dataset.policy.path, text, asked.dataset.state
    )
    return asked.render(
        "review.html",
        review=found,
        digest=digest,
        checked=_digest(text),
        same=_digest(text) == digest,
        weaker=json.dumps(found.weaker),
        passwords=asked.backend.passwords,
    )


@page(STEWARD)
async def apply(asked: Asked) -> Response:
    """Put a text that was checked in the place of the file, and in force."""
    text, digest = _given(asked)
    if asked.form.get("checked") != _digest(text):
        raise OperationalError(
            "the text has changed since it was checked; nothing was changed", hint="check it again"
        )
    await _require_password(asked)
    accepted = _accepted(asked.form.get("weaker", "")) if "accept" in asked.form else []
    path, state = asked.dataset.policy.path, asked.dataset.state
    user = asked.visit.user or me()
    report = await asked.visit.thread(adopt, path, text, digest, user, accepted, state)
    await asked.backend.renew(asked.dataset.name)
    return asked.render("applied.html", report=report)


async def _require_password(asked: Asked) -> None:
    """Let a user in again, by the password that the form has.

    Raises:
        Error: it is wrong.
    """
    if not asked.backend.passwords:
        return
    host = asked.request.client.host if asked.request.client else ""
    again = Credentials(asked.visit.user, asked.form.get("password", "")[:1000], host)
    try:
        await asked.backend.login(again)
    except Error as error:
        raise OperationalError(f"{error.message}; nothing was changed") from None
    await asked.backend.leave(again)


def _given(asked: Asked) -> tuple[str, str]:
    """Return the text of a form, its lines ending as in files, and the digest of its file."""
    text = asked.form.get("text", "").replace("\r\n", "\n").replace("\r", "\n")
    return text, asked.form.get("digest", "")


def _accepted(told: str) -> list[str]:
    """Return the sentences that were shown beside the box that is ticked."""
    try:
        found = json.loads(told)
    except ValueError:
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _text(found: Policy) -> Text | None:
    try:
        return text_of(found.path)
    except OperationalError:
        return None


async def _guards(asked: Asked) -> list[GuardReport] | str:
    """Return how near each guarded claim is, or why that cannot be told."""
    if not asked.dataset.policy.privacy.guards:
        return []
    try:
        found: list[GuardReport] = await asked.visit.thread(
            guards, asked.dataset.policy, asked.dataset.state
        )
    except Error as error:
        return error.message
    return found


def _axis(attribute: Attribute) -> dict[str, Any]:
    """Return an attribute as the page shows it."""
    codes = range(attribute.size)
    shown = [label(attribute, code) for code in codes[:LONG]]
    rules = {"values outside": attribute.outside, "NULL": attribute.nulls}
    return {
        "name": attribute.name,
        "type": attribute.type,
        "kind": "bins" if attribute.binned else "values",
        "cells": attribute.size,
        "values": shown,
        "last": label(attribute, attribute.size - 1) if attribute.size > LONG else "",
        "levels": list(attribute.levels or ()),
        "rules": rules,
    }


def _measures(found: Policy) -> list[dict[str, Any]]:
    """Return the measures as the page shows them."""
    domain: Domain = found.domain
    return [
        {
            "name": each.name,
            "low": decimal(each.low),
            "high": decimal(each.high),
            "quantum": decimal(each.quantum),
            "nulls": each.nulls,
            "utility": found.measure_utility.get(each.name),
        }
        for each in domain.measures
    ]


def _users(found: Policy) -> list[dict[str, Any]]:
    """Return what each user may do and spend; whoever is not listed last."""
    try:
        listed = access(found, users_of(found))
    except PolicyError:
        return []
    names = {name: name for name in listed if name != UNLISTED}
    if not listed[UNLISTED].get("refused"):
        names[UNLISTED] = "anybody else"
    return [{"name": said} | _in_decimals(listed[name]) for name, said in names.items()]


def _in_decimals(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's privileges with amounts as people write them."""
    caps = {name: decimal(Fraction(cap)) for name, cap in user["caps"].items()}
    own = user["own"] and decimal(Fraction(user["own"]))
    return dict(user) | {"caps": caps, "own": own}

"""The commands of data stewards and auditors: policies, snapshots, the audit log, the ledger.

Each is an act of whoever may read and write the state folder, and is audited under their name.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from proxy.cli.options import JSON, POLICY, STATE, WIDE, about_policy

DISAGREES = 2


@click.command()
@about_policy
@click.option(
    "--accept-second-budget",
    is_flag=True,
    help="Make it even where another state has a budget on the same source.",
)
def init(policy: str, state: str | None, as_json: bool, accept_second_budget: bool) -> None:
    """Make the state of POLICY: the cube and an empty ledger.

    Where another state is over the same source, as after a dataset was renamed, or its state
    looked for in another folder, the people in it would lose both budgets: it says so and makes
    nothing, unless you accept that.  It looks beside the state, the policy and the source.
    """
    import proxy.policy as policies
    from proxy.cli import show, show_state
    from proxy.engine import init as make

    with show.progress("building the cube") as progress:
        report = make(policy, state, progress, accept_second_budget=accept_second_budget)
    show_state.made(report, as_json, bool(policies.load(policy).privacy.warm_up))


@click.command()
@about_policy
@click.option(
    "--sql",
    "warehouse",
    type=click.Choice(("bigquery", "redshift", "snowflake", "sqlserver")),
    help="Print the SQL that would group the records in a warehouse, and check nothing.  Nobody "
    "has run it there.",
)
def check(policy: str, state: str | None, as_json: bool, warehouse: str | None) -> None:
    """Check POLICY against the data, and price typical questions.

    For stewards alone: it reads the data, and its counts are exact.
    """
    from proxy.cli import show_state
    from proxy.steward import check as check_policy
    from proxy.steward import sql_for

    if warehouse is not None:
        click.echo(sql_for(policy, warehouse), nl=False)
        return
    show_state.check(check_policy(policy, state), as_json)


@click.command()
@about_policy
@click.option(
    "--accept-weaker", is_flag=True, help="Apply it even where it protects less than before."
)
@click.option(
    "--all", "everything", is_flag=True, help="Read closed periods again where the cells change."
)
def apply(
    policy: str, state: str | None, as_json: bool, accept_weaker: bool, everything: bool
) -> None:
    """Put POLICY, as it has been changed, in force.

    Where it protects less than the policy in force, it says so and changes nothing, unless you
    accept that.  Where the cells have changed, the cube is rebuilt.  A server that is running takes
    it over by itself; an embedded connection refuses to go on with the old policy: open it again.
    """
    from proxy.cli import show, show_state
    from proxy.steward import apply as put_in_force

    with show.progress("building the cube") as progress:
        report = put_in_force(
            policy, state, accept_weaker=accept_weaker, everything=everything, progress=progress
        )
    show_state.applied(report, as_json)


@click.command()
@about_policy
@click.option("--all", "everything", is_flag=True, help="Read closed periods again, too.")
def rebuild(policy: str, state: str | None, as_json: bool, everything: bool) -> None:
    """Read the data again, as a new snapshot.

    The same people may be in it, so every cell starts with the most that any cell had paid;
    with `unit: row` and `records: immutable` each goes on with its own.  Earlier answers stay
    in the ledger, but nothing more is inferred from them, save of periods that were closed (the
    policy's `partition`): these are not read again, unless --all is said.
    """
    from proxy.cli import show, show_state
    from proxy.steward import rebuild as build

    with show.progress("building the cube") as progress:
        report = build(policy, state, progress, everything=everything)
    show_state.rebuilt(report, as_json)


@click.command()
@about_policy
@WIDE
@click.option(
    "--verify", is_flag=True, help="Re-hash the whole ledger instead, and say what does not agree."
)
@click.pass_context
def audit(
    context: click.Context,
    policy: str,
    state: str | None,
    as_json: bool,
    wide: bool,
    verify: bool,
) -> None:
    """List all statements and acts, free ones too.

    Each with who, when, what, and the cost.

    With --verify the exit status is 0 where everything agrees, else 2.
    """
    from proxy.cli import show_state
    from proxy.steward import audit as lines_of
    from proxy.steward import verify as problems_of

    if not verify:
        show_state.audit(lines_of(policy, state), as_json, wide)
        return
    problems = problems_of(policy, state)
    show_state.verified(problems, as_json)
    if problems:
        context.exit(DISAGREES)


@click.command()
@about_policy
def guards(policy: str, state: str | None, as_json: bool) -> None:
    """Show how close guarded claims are to certain.

    For each claim: the cap that it puts on what a cell may pay, what the dearest cell has paid in
    all histories, and how certain that can make anybody of the claim.
    """
    from proxy.cli import show_state
    from proxy.steward import guards as reports_of

    show_state.guards(reports_of(policy, state), as_json)


@click.group()
def ledger() -> None:
    """Back up and restore the ledger."""


@ledger.command()
@POLICY
@click.argument("file")
@STATE
def backup(policy: str, file: str, state: str | None) -> None:
    """Copy the ledger to a new FILE, while it is in use."""
    from proxy.steward import backup as copy

    copy(policy, Path(file), state)
    click.echo(f"The ledger was copied to {file}.  Keep it as secret as the answers it holds.")


@ledger.command()
@POLICY
@click.argument("file")
@STATE
@JSON
@click.option(
    "--charge-all", is_flag=True, help="Charge the whole budget: the anchor is lost as well."
)
@click.option(
    "--accept-weaker",
    is_flag=True,
    help="Go back to the policy of the backup, though another was in force since.",
)
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    help="A copy of the anchor of another proxy on the ledger, which may have seen more.",
)
def restore(
    policy: str,
    file: str,
    state: str | None,
    as_json: bool,
    charge_all: bool,
    accept_weaker: bool,
    anchors: tuple[str, ...],
) -> None:
    """Put the backup FILE in the place of the ledger, or of one that is gone with its folder.

    What was spent since the backup is charged in full: the anchor, beside the ledger, remembers
    it.  The ledger that was there is kept, a cube that is missing is built again.  Stop every
    proxy first.
    """
    from proxy.cli import show, show_state
    from proxy.steward import restore as put_back

    with show.progress("building the cube") as progress:
        report = put_back(
            policy,
            Path(file),
            state,
            charge_all=charge_all,
            accept_weaker=accept_weaker,
            anchors=[Path(anchor) for anchor in anchors],
            progress=progress,
        )
    show_state.restored(report, as_json)


@click.command()
@click.option("--users", is_flag=True, help="That of users.yaml instead.")
def schema(users: bool) -> None:
    """Print the JSON Schema of policies, for editors."""
    from proxy.policy import keys

    click.echo(json.dumps(keys.json_schema(keys.USERS if users else keys.POLICY), indent=2))

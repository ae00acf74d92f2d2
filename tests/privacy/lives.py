"""Lives of random steps, or of given ones, in an empty folder; what is found is made short."""

import shutil
from random import Random

from tests.privacy.accountant import Violation
from tests.privacy.documents import written
from tests.privacy.histories import World

TURNS = (  # a step may name what: edit:KEY, lose:WHAT; one in two of those with ? is left out
    (9, ("edit", "apply", "rebuild?", "drain", "ask?")),
    (5, ("edit", "rebuild", "drain", "ask?")),
    (3, ("edit", "drain", "ask")),
    (4, ("edit_public", "apply?", "rebuild?", "drain", "ask?")),
    (2, ("edit_users", "ask", "ask")),
    (2, ("move", "rebuild", "drain", "ask?")),
    (3, ("lose", "move?", "init", "rebuild?", "drain", "ask?")),
    (2, ("backup", "drain", "lose", "edit_limits", "restore", "undo", "rebuild?", "drain")),
    (2, ("backup", "drain", "lose", "restore", "edit_limits?", "init?", "apply?", "drain")),
    (1, ("backup", "ask", "edit", "apply", "ask", "lose", "restore", "undo?", "rebuild", "drain")),
    (1, ("look", "undo", "apply", "ask")),
    (3, ("edit:attributes", "apply", "rebuild", "drain")),
    (3, ("edit:attributes.<attribute>.levels", "apply?", "rebuild?", "drain")),
    (2, ("edit:attributes.<attribute>.expression", "apply", "rebuild", "drain")),
    (2, ("edit:privacy.cells[].where", "apply", "drain")),
    (3, ("edit:timezone", "apply", "rebuild", "drain")),
    (3, ("edit:source.path", "rebuild", "drain")),
    (1, ("edit:privacy.unit", "apply", "drain", "ask", "ask")),
    (2, ("edit:analysts", "apply", "ask", "ask")),
    (3, ("edit:partition", "apply", "drain", "move", "rebuild", "drain", "grow?", "rebuild?")),
    (1, ("move", "edit:records", "apply", "rebuild", "drain")),
    (3, ("lose:cube", "move", "init", "drain")),
    (1, ("lose:key", "lose:cube", "move", "init", "drain")),
    (3, ("backup", "drain", "lose:anchor", "edit:privacy.budget", "restore", "undo", "drain")),
    (2, ("backup", "drain", "lose:all", "restore", "edit:privacy.budget", "init", "drain")),
    (2, ("drain:ann", "edit:analysts", "apply", "drain:ann")),
    (1, ("drain:ann", "edit_users", "drain:ann", "stale:ann")),
    (1, ("backup", "edit_users", "drain:ann", "lose", "restore", "edit_users", "drain:ann")),
    (1, ("backup", "edit:groups", "apply", "drain:ann", "lose", "restore", "drain:ann")),
    (1, ("drain", "rename", "apply", "drain", "rename", "apply", "drain")),
    (1, ("drain", "copy_cube", "move?", "rebuild", "copy_cube", "drain", "restart", "drain")),
    (1, ("backup", "drain", "edit", "apply", "rebuild", "drain", *2 * ("restore", "drain"))),
    (1, ("backup", "copy_state", "drain", "drain", "old_state", "drain", "restore", "drain")),
    (2, ("drain", "edit:dataset", "init", "apply?", "drain", "edit:dataset", "drain")),
    (1, ("drain:ann", "users_gone", "drain:ann", "users_gone", "drain:ann")),
)  # fmt: skip


def steps(seed):
    """Return the steps of a life: (name, seed of its choices)."""
    rng = Random(f"life {seed}")
    names = ["init", "ask?", "drain?"]
    for _ in range(rng.choice((2, 3, 4))):
        names += rng.choices([turn for _, turn in TURNS], [weight for weight, _ in TURNS])[0]
    kept = [name.removesuffix("?") for name in names if name[-1] != "?" or rng.random() < 0.5]
    return [(name, rng.randrange(2**32)) for name in kept]


def turned(turn, seed):
    """Return the steps of a life of one turn."""
    rng = Random(f"turn {seed}")
    return [(name, rng.randrange(2**32)) for name in ("init", *turn)]


def live(folder, seed, doubles, taken=None):
    """Live one life in an empty folder, of random steps if none are given; return its world.

    Raises:
        Violation: with what happened, as notes.
    """
    folder.mkdir(parents=True)
    world = World(folder, seed, doubles)
    first = written(world.document)
    try:
        for step, choice in taken or steps(seed):
            world.run(step, choice)
    except Violation as violation:
        violation.trace = world.trace
        violation.add_note("\n".join([f"life {seed}", first, *world.trace]))
        raise
    finally:
        world.close()
        shutil.rmtree(folder, ignore_errors=True)
    return world


def shortest(folder, seed, doubles, violation):
    """Return the fewest steps found that still end in a violation of the kind, and that."""
    taken, found = steps(seed), violation
    at = len(taken) - 1
    while at >= 0:
        fewer = taken[:at] + taken[at + 1 :]
        try:
            live(folder / f"s{at}-{len(taken)}", seed, doubles, fewer)
        except Violation as again:
            if again.kind == violation.kind:
                taken, found = fewer, again
        at -= 1
    return taken, found

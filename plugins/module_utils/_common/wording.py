# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Messages that name what the user has set (pure).

Code names the options of a module. Where a playbook fills them from variables, the module's option ``variables`` says
which variable holds which option, and messages name that one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Documented by the fragment C(variables).
VARIABLES = {"type": "dict", "default": {}}

# An option with an underscore is no word of a sentence. In a path, an URL and a quoted value it stays as it is.
_NAME = r"(?<![\w./:'\"@-])(%s)(?![\w/'\"@=-])"
# Other options may be words of sentences. They count at the beginning of a finding, with a member behind them, and
# where the text says that something is to be set.
_AT_FIRST = r"(?:^|(?<=\n)|(?<=\n- ))(%s)(?![\w/-])"
_OF_A_MACHINE = r"(?:(?<=': )|(?<=; ))(%s)(?=: | [\"'\[{]|[.\[])"
_WITH_MEMBER = r"(?<![\w./:'\"@-])(%s)(?=\.[a-z]|\[[0-9])"
_TO_SET = r"(?:(?<=\b[Ss]et )|(?<=\bentries to )|(?<=\boption )|(?<=\bit in ))(%s)(?![\w./-])"
# With a value that means something, as in "as proof: port says".
_WITH_VALUE = r"(?<![\w./:'\"@-])(%s)(?=: [\w-]+ (?:says|asks|ignores|skips)\b)"


def in_variables(text: str, variables: Mapping[str, str] | None) -> str:
    """The text, with the names of variables in the place of the options that these hold."""
    known = {option: variable for option, variable in (variables or {}).items() if variable and variable != option}
    if not known or not text:
        return text
    names = "|".join(sorted((re.escape(option) for option in known if "_" in option), key=len, reverse=True))
    words = "|".join(sorted((re.escape(option) for option in known if "_" not in option), key=len, reverse=True))
    patterns = [_NAME % names] if names else []
    patterns += [one % words for one in (_AT_FIRST, _OF_A_MACHINE, _WITH_MEMBER, _TO_SET, _WITH_VALUE)] if words else []
    return re.sub(
        "|".join(patterns), lambda found: known[next(name for name in found.groups() if name)], text, flags=re.ASCII
    )

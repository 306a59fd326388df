"""Make a user's own env from the place of its class: `my_file:MyEnv` imports that file.

Use it only for names from users themselves, in a config or on the command line. Names from the description of a run
must never come here, because a run may come from anybody. Envs of the package are made by name (`make_env`).
"""

import importlib
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from mas_lab.env import Env, EnvError


def made(env: type, name: str, options: dict[str, Any]) -> Env:
    """Return `env(**options)`; for an unknown option raise ValueError with the env's known options."""
    known = {f.name for f in fields(env) if f.init} if is_dataclass(env) else set(options)
    if unknown := ", ".join(sorted(set(options) - known)):
        listed = ", ".join(sorted(known)) or "none"
        raise ValueError(f"env {name!r} has no option {unknown}; its options are: {listed}")
    return env(**options)


def own_env(name: str, folder: Path, **options: Any) -> Env:
    """Return the env `file:Class` or `package.module:Class`, made with `options`; files are searched from `folder`.

    A file is imported under its own name, as `import` would do in its folder. Raises EnvError if the file, module or
    class does not exist, or if importing it fails.
    """
    where, _, kind = name.rpartition(":")
    file = (folder / f"{where.removesuffix('.py')}.py").resolve()
    sys.path.insert(0, str(file.parent))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(file.stem if file.is_file() else where)
    except (Exception, SystemExit) as error:
        tried = f"importing {file}" if file.is_file() else f"there is no file {file}, and importing {where}"
        raise EnvError(f"env {name!r}: {tried} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
    if file.is_file() and Path(getattr(module, "__file__", None) or "").resolve() != file:
        raise EnvError(f"env {name!r}: another module is called {file.stem!r} already; rename {file.name}")
    found = getattr(module, kind, None)
    if not isinstance(found, type):
        classes = [key for key, one in vars(module).items() if isinstance(one, type) and hasattr(one, "step")]
        raise EnvError(f"env {name!r}: {where} has no class {kind!r}; its envs are: {', '.join(classes) or 'none'}")
    return made(found, name, options)

"""What becomes of an implementation that fails where its hook isolates failures: logged, counted, skipped."""

import logging
from collections import Counter
from typing import Final, NoReturn

from typing_extensions import TypeIs

from bub.errors import HookTypeError
from bub.hooks.declaration import Implementation

logger: Final = logging.getLogger("bub.hooks")


class HookFailures:
    """The isolated failures of one framework.

    Attributes:
        counts: How often each implementation failed, by hook and plugin.
        strict: Whether isolated failures are raised after all.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.strict = strict
        self._reported: set[Implementation] = set()

    def failed(self, implementation: Implementation, error: Exception) -> object:
        """Log and count an exception; the answer to go on with: None, or a denial where the guard asked for one."""
        self._note(implementation, implementation.spec.failure.event, error, traceback=True)
        if implementation.denial is None:
            return None
        hook, plugin = implementation.spec.name, implementation.plugin
        return implementation.denial(f"{hook} of plugin {plugin!r} failed: {error_text(error)}")

    def bad_return(self, implementation: Implementation, got: object) -> object:
        """Log and count a result of the wrong type; the answer to go on with, as for `failed`."""
        spec = implementation.spec
        error = HookTypeError(spec.name, implementation.plugin, str(spec.signature.return_annotation), got)
        self._note(implementation, "hook.agent_hook_bad_return", error, traceback=False)
        return None if implementation.denial is None else implementation.denial(str(error))

    def noted(self, implementation: Implementation, note: str) -> None:
        """Log that a part of a result did not take effect."""
        self._log("hook.result_part_ignored", implementation, note)

    def async_not_supported(self, implementation: Implementation) -> None:
        """Log, once for each implementation, that it is asynchronous where the caller cannot wait."""
        if implementation not in self._reported:
            self._reported.add(implementation)
            self._log("hook.async_not_supported", implementation, "skipped, its caller cannot await it")

    def forget(self, plugin: str) -> None:
        """Drop what is known of a plugin that was unregistered."""
        self._reported = {known for known in self._reported if known.plugin != plugin}
        for known in [known for known in self.counts if known[1] == plugin]:
            del self.counts[known]

    def _note(self, implementation: Implementation, event: str, error: Exception, *, traceback: bool) -> None:
        self.counts[implementation.spec.name, implementation.plugin] += 1
        self._log(event, implementation, error_text(error), error if traceback else None)
        if self.strict:
            raise error

    def _log(self, event: str, implementation: Implementation, text: str, error: Exception | None = None) -> None:
        hook, plugin = implementation.spec.name, implementation.plugin
        logger.warning(
            "%s %s of plugin %r: %s (%s)",
            *(event, hook, plugin, text, implementation.location),
            exc_info=error,
            extra={"hook": hook, "plugin": plugin},
        )


def error_text(error: BaseException) -> str:
    """The kind of an error and what it says; only the kind where it cannot say anything."""
    try:
        return f"{type(error).__qualname__}: {error}"
    except Exception:
        return type(error).__qualname__


def collect(errors: list[Exception] | None, error: Exception) -> list[Exception]:
    """The errors so far and one more."""
    if errors is None:
        return [error]
    errors.append(error)
    return errors


def raise_collected(errors: list[Exception], what: str = "several implementations failed") -> NoReturn:
    """Raise one error as it is, several as an ExceptionGroup."""
    if len(errors) == 1:
        raise errors[0]
    raise ExceptionGroup(what, errors)


def flattened(error: Exception) -> tuple[Exception, ...]:
    """The errors that `raise_collected` put into one."""
    return error.exceptions if _is_group(error) else (error,)


def _is_group(error: Exception) -> TypeIs[ExceptionGroup[Exception]]:
    return isinstance(error, ExceptionGroup)

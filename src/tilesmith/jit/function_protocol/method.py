"""A kernel that is written in a class is a method: an instance that it is called on is ``self``."""

from __future__ import annotations

from typing import Any

_LOCAL = "<locals>"


def is_method(function: Any) -> bool:
    """Whether a function was written directly in the body of a class."""
    owner, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    return bool(owner) and owner.rpartition(".")[2] != _LOCAL


class KernelMethod:
    """A kernel with its ``self`` given; everything else is the kernel's."""

    def __init__(self, kernel: Any, instance: object) -> None:
        self.__func__ = kernel
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel on the instance."""
        return self.__func__(self.__self__, *args, **kwargs)

    def bind(self, args: tuple[Any, ...] | list[Any], **options: Any) -> Any:
        """As ``Kernel.bind``, without ``self`` among the arguments."""
        return self.__func__.bind((self.__self__, *args), **options)

    def autotune(self, args: tuple[Any, ...] | list[Any], **options: Any) -> Any:
        """As ``Kernel.autotune``, without ``self`` among the arguments."""
        return self.__func__.autotune((self.__self__, *args), **options)

    def normalize_args(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """As ``Kernel.normalize_args``, without ``self`` among the arguments."""
        return self.__func__.normalize_args(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.__self__, self.__func__.name)

"""The part of xllamacpp that bub uses; the real module has far more, and no types."""

from typing import Never, Self

from typing_extensions import disjoint_base

@disjoint_base
class CommonParamsModel:
    path: str
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...

@disjoint_base
class CommonParamsSampling:
    seed: int
    temp: float
    top_p: float
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...

@disjoint_base
class CpuParams:
    n_threads: int
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...

@disjoint_base
class CommonParams:
    cpuparams: CpuParams
    cpuparams_batch: CpuParams
    n_ctx: int
    n_parallel: int
    n_predict: int
    kv_unified: bool
    port: int
    api_keys: list[str]
    verbosity: int
    model: CommonParamsModel
    sampling: CommonParamsSampling

@disjoint_base
class Server:
    def __new__(cls, common_params: CommonParams) -> Self: ...
    @property
    def listening_address(self) -> str: ...

"""The part of xllamacpp that bub uses; the real module has far more, and no types."""

class CommonParamsModel:
    path: str

class CommonParamsSampling:
    temp: float
    top_p: float

class CpuParams:
    n_threads: int

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

class Server:
    def __init__(self, common_params: CommonParams) -> None: ...
    @property
    def listening_address(self) -> str: ...

from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegionRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REGION_ROLE_UNSPECIFIED: _ClassVar[RegionRole]
    REGION_ROLE_WEIGHTS: _ClassVar[RegionRole]
    REGION_ROLE_IO: _ClassVar[RegionRole]
    REGION_ROLE_SCRATCH: _ClassVar[RegionRole]
    REGION_ROLE_ROWS: _ClassVar[RegionRole]
    REGION_ROLE_PAGES: _ClassVar[RegionRole]

class RegionBacking(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REGION_BACKING_UNSPECIFIED: _ClassVar[RegionBacking]
    REGION_BACKING_STORAGE: _ClassVar[RegionBacking]
    REGION_BACKING_ZEROED: _ClassVar[RegionBacking]
    REGION_BACKING_ELASTIC: _ClassVar[RegionBacking]

class ModuleFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODULE_FORMAT_UNSPECIFIED: _ClassVar[ModuleFormat]
    MODULE_FORMAT_ELF: _ClassVar[ModuleFormat]
    MODULE_FORMAT_CUBIN: _ClassVar[ModuleFormat]

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATA_TYPE_UNSPECIFIED: _ClassVar[DataType]
    DATA_TYPE_U8: _ClassVar[DataType]
    DATA_TYPE_I32: _ClassVar[DataType]
    DATA_TYPE_I64: _ClassVar[DataType]
    DATA_TYPE_U32: _ClassVar[DataType]
    DATA_TYPE_F32: _ClassVar[DataType]
    DATA_TYPE_BF16: _ClassVar[DataType]

class ValueSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VALUE_SOURCE_UNSPECIFIED: _ClassVar[ValueSource]
    VALUE_SOURCE_FRAME: _ClassVar[ValueSource]
    VALUE_SOURCE_LANE_SLOTS: _ClassVar[ValueSource]
    VALUE_SOURCE_LANE_EPOCHS: _ClassVar[ValueSource]
    VALUE_SOURCE_LANE_MASKED: _ClassVar[ValueSource]
    VALUE_SOURCE_GRAMMAR_MASKS: _ClassVar[ValueSource]
    VALUE_SOURCE_PREFILL_COMMAND: _ClassVar[ValueSource]
    VALUE_SOURCE_PREFILL_TOKENS: _ClassVar[ValueSource]
    VALUE_SOURCE_ADMISSION_COMMAND: _ClassVar[ValueSource]
    VALUE_SOURCE_ADMISSION_FIELDS: _ClassVar[ValueSource]
    VALUE_SOURCE_ADMISSION_PARAMETERS: _ClassVar[ValueSource]
    VALUE_SOURCE_ADMISSION_PROMPT: _ClassVar[ValueSource]
    VALUE_SOURCE_ADMISSION_BIAS_TOKENS: _ClassVar[ValueSource]
    VALUE_SOURCE_ADMISSION_BIAS_VALUES: _ClassVar[ValueSource]
    VALUE_SOURCE_STATE_COMMAND: _ClassVar[ValueSource]
    VALUE_SOURCE_PAGE_TABLE: _ClassVar[ValueSource]
    VALUE_SOURCE_REQUEST_FIELDS: _ClassVar[ValueSource]
    VALUE_SOURCE_REQUEST_PARAMETERS: _ClassVar[ValueSource]
    VALUE_SOURCE_HISTOGRAM: _ClassVar[ValueSource]
    VALUE_SOURCE_BIAS_TOKENS: _ClassVar[ValueSource]
    VALUE_SOURCE_BIAS_VALUES: _ClassVar[ValueSource]
    VALUE_SOURCE_COMPLETION: _ClassVar[ValueSource]
    VALUE_SOURCE_LOGPROB_TOKENS: _ClassVar[ValueSource]
    VALUE_SOURCE_LOGPROB_VALUES: _ClassVar[ValueSource]
    VALUE_SOURCE_LOGITS: _ClassVar[ValueSource]

class RequestField(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_FIELD_EPOCH: _ClassVar[RequestField]
    REQUEST_FIELD_CONSUMED: _ClassVar[RequestField]
    REQUEST_FIELD_GENERATED: _ClassVar[RequestField]
    REQUEST_FIELD_FINISHED: _ClassVar[RequestField]
    REQUEST_FIELD_PENDING: _ClassVar[RequestField]
    REQUEST_FIELD_COUNTER: _ClassVar[RequestField]
    REQUEST_FIELD_SEED: _ClassVar[RequestField]
    REQUEST_FIELD_TOP_K: _ClassVar[RequestField]
    REQUEST_FIELD_OUTPUT_LIMIT: _ClassVar[RequestField]
    REQUEST_FIELD_IGNORE_EOS: _ClassVar[RequestField]
    REQUEST_FIELD_LOGPROBS: _ClassVar[RequestField]
    REQUEST_FIELD_BIAS_COUNT: _ClassVar[RequestField]

class RequestParameter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_PARAMETER_TEMPERATURE: _ClassVar[RequestParameter]
    REQUEST_PARAMETER_TOP_P: _ClassVar[RequestParameter]
    REQUEST_PARAMETER_MIN_P: _ClassVar[RequestParameter]
    REQUEST_PARAMETER_REPETITION: _ClassVar[RequestParameter]
    REQUEST_PARAMETER_PRESENCE: _ClassVar[RequestParameter]
    REQUEST_PARAMETER_FREQUENCY: _ClassVar[RequestParameter]

class PrefillField(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PREFILL_FIELD_SLOT: _ClassVar[PrefillField]
    PREFILL_FIELD_EPOCH: _ClassVar[PrefillField]
    PREFILL_FIELD_CONSUMED: _ClassVar[PrefillField]
    PREFILL_FIELD_COUNT: _ClassVar[PrefillField]
    PREFILL_FIELD_SAMPLE: _ClassVar[PrefillField]
    PREFILL_FIELD_MASKED: _ClassVar[PrefillField]

class StateField(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_FIELD_SLOT: _ClassVar[StateField]
    STATE_FIELD_EPOCH: _ClassVar[StateField]
    STATE_FIELD_ROW: _ClassVar[StateField]
    STATE_FIELD_CONSUMED: _ClassVar[StateField]
    STATE_FIELD_PAGE: _ClassVar[StateField]

class CompletionField(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPLETION_FIELD_EPOCH: _ClassVar[CompletionField]
    COMPLETION_FIELD_SLOT: _ClassVar[CompletionField]
    COMPLETION_FIELD_STATUS: _ClassVar[CompletionField]
    COMPLETION_FIELD_FAMILY: _ClassVar[CompletionField]
    COMPLETION_FIELD_CONSUMED: _ClassVar[CompletionField]
    COMPLETION_FIELD_GENERATED: _ClassVar[CompletionField]
    COMPLETION_FIELD_TOKEN_COUNT: _ClassVar[CompletionField]
    COMPLETION_FIELD_FINISHED: _ClassVar[CompletionField]
    COMPLETION_FIELD_PENDING: _ClassVar[CompletionField]
    COMPLETION_FIELD_COUNTER: _ClassVar[CompletionField]
    COMPLETION_FIELD_ROW: _ClassVar[CompletionField]
    COMPLETION_FIELD_LOGPROB_COUNT: _ClassVar[CompletionField]

class CompletionStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPLETION_STATUS_INACTIVE: _ClassVar[CompletionStatus]
    COMPLETION_STATUS_LIVE: _ClassVar[CompletionStatus]
    COMPLETION_STATUS_REJECTED: _ClassVar[CompletionStatus]

class Finish(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_NONE: _ClassVar[Finish]
    FINISH_EOS: _ClassVar[Finish]
    FINISH_LENGTH: _ClassVar[Finish]

class OperationFamily(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_FAMILY_UNSPECIFIED: _ClassVar[OperationFamily]
    OPERATION_FAMILY_PREFILL: _ClassVar[OperationFamily]
    OPERATION_FAMILY_DECODE: _ClassVar[OperationFamily]
    OPERATION_FAMILY_RESUME: _ClassVar[OperationFamily]
    OPERATION_FAMILY_INITIALIZE: _ClassVar[OperationFamily]
    OPERATION_FAMILY_RESTORE: _ClassVar[OperationFamily]
    OPERATION_FAMILY_SNAPSHOT: _ClassVar[OperationFamily]
    OPERATION_FAMILY_RESET: _ClassVar[OperationFamily]

class ClusterScheduling(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLUSTER_SCHEDULING_DEFAULT: _ClassVar[ClusterScheduling]
    CLUSTER_SCHEDULING_SPREAD: _ClassVar[ClusterScheduling]
    CLUSTER_SCHEDULING_LOAD_BALANCING: _ClassVar[ClusterScheduling]

class MemorySyncDomain(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMORY_SYNC_DOMAIN_DEFAULT: _ClassVar[MemorySyncDomain]
    MEMORY_SYNC_DOMAIN_REMOTE: _ClassVar[MemorySyncDomain]

class AccessProperty(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_PROPERTY_NORMAL: _ClassVar[AccessProperty]
    ACCESS_PROPERTY_STREAMING: _ClassVar[AccessProperty]
    ACCESS_PROPERTY_PERSISTING: _ClassVar[AccessProperty]

class ToolParser(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_PARSER_UNSPECIFIED: _ClassVar[ToolParser]
    TOOL_PARSER_NONE: _ClassVar[ToolParser]
    TOOL_PARSER_HERMES_JSON: _ClassVar[ToolParser]
    TOOL_PARSER_QWEN_XML: _ClassVar[ToolParser]
    TOOL_PARSER_LLAMA3_JSON: _ClassVar[ToolParser]
    TOOL_PARSER_MISTRAL: _ClassVar[ToolParser]
    TOOL_PARSER_GLM: _ClassVar[ToolParser]
    TOOL_PARSER_DEEPSEEK: _ClassVar[ToolParser]
    TOOL_PARSER_KIMI: _ClassVar[ToolParser]
    TOOL_PARSER_GEMMA: _ClassVar[ToolParser]
    TOOL_PARSER_HARMONY: _ClassVar[ToolParser]

class ReasoningParser(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASONING_PARSER_UNSPECIFIED: _ClassVar[ReasoningParser]
    REASONING_PARSER_NONE: _ClassVar[ReasoningParser]
    REASONING_PARSER_THINK_TAGS: _ClassVar[ReasoningParser]
    REASONING_PARSER_THINK_OPEN: _ClassVar[ReasoningParser]
    REASONING_PARSER_THINK_BRACKETS: _ClassVar[ReasoningParser]
    REASONING_PARSER_THOUGHT_CHANNEL: _ClassVar[ReasoningParser]
    REASONING_PARSER_HARMONY: _ClassVar[ReasoningParser]
REGION_ROLE_UNSPECIFIED: RegionRole
REGION_ROLE_WEIGHTS: RegionRole
REGION_ROLE_IO: RegionRole
REGION_ROLE_SCRATCH: RegionRole
REGION_ROLE_ROWS: RegionRole
REGION_ROLE_PAGES: RegionRole
REGION_BACKING_UNSPECIFIED: RegionBacking
REGION_BACKING_STORAGE: RegionBacking
REGION_BACKING_ZEROED: RegionBacking
REGION_BACKING_ELASTIC: RegionBacking
MODULE_FORMAT_UNSPECIFIED: ModuleFormat
MODULE_FORMAT_ELF: ModuleFormat
MODULE_FORMAT_CUBIN: ModuleFormat
DATA_TYPE_UNSPECIFIED: DataType
DATA_TYPE_U8: DataType
DATA_TYPE_I32: DataType
DATA_TYPE_I64: DataType
DATA_TYPE_U32: DataType
DATA_TYPE_F32: DataType
DATA_TYPE_BF16: DataType
VALUE_SOURCE_UNSPECIFIED: ValueSource
VALUE_SOURCE_FRAME: ValueSource
VALUE_SOURCE_LANE_SLOTS: ValueSource
VALUE_SOURCE_LANE_EPOCHS: ValueSource
VALUE_SOURCE_LANE_MASKED: ValueSource
VALUE_SOURCE_GRAMMAR_MASKS: ValueSource
VALUE_SOURCE_PREFILL_COMMAND: ValueSource
VALUE_SOURCE_PREFILL_TOKENS: ValueSource
VALUE_SOURCE_ADMISSION_COMMAND: ValueSource
VALUE_SOURCE_ADMISSION_FIELDS: ValueSource
VALUE_SOURCE_ADMISSION_PARAMETERS: ValueSource
VALUE_SOURCE_ADMISSION_PROMPT: ValueSource
VALUE_SOURCE_ADMISSION_BIAS_TOKENS: ValueSource
VALUE_SOURCE_ADMISSION_BIAS_VALUES: ValueSource
VALUE_SOURCE_STATE_COMMAND: ValueSource
VALUE_SOURCE_PAGE_TABLE: ValueSource
VALUE_SOURCE_REQUEST_FIELDS: ValueSource
VALUE_SOURCE_REQUEST_PARAMETERS: ValueSource
VALUE_SOURCE_HISTOGRAM: ValueSource
VALUE_SOURCE_BIAS_TOKENS: ValueSource
VALUE_SOURCE_BIAS_VALUES: ValueSource
VALUE_SOURCE_COMPLETION: ValueSource
VALUE_SOURCE_LOGPROB_TOKENS: ValueSource
VALUE_SOURCE_LOGPROB_VALUES: ValueSource
VALUE_SOURCE_LOGITS: ValueSource
REQUEST_FIELD_EPOCH: RequestField
REQUEST_FIELD_CONSUMED: RequestField
REQUEST_FIELD_GENERATED: RequestField
REQUEST_FIELD_FINISHED: RequestField
REQUEST_FIELD_PENDING: RequestField
REQUEST_FIELD_COUNTER: RequestField
REQUEST_FIELD_SEED: RequestField
REQUEST_FIELD_TOP_K: RequestField
REQUEST_FIELD_OUTPUT_LIMIT: RequestField
REQUEST_FIELD_IGNORE_EOS: RequestField
REQUEST_FIELD_LOGPROBS: RequestField
REQUEST_FIELD_BIAS_COUNT: RequestField
REQUEST_PARAMETER_TEMPERATURE: RequestParameter
REQUEST_PARAMETER_TOP_P: RequestParameter
REQUEST_PARAMETER_MIN_P: RequestParameter
REQUEST_PARAMETER_REPETITION: RequestParameter
REQUEST_PARAMETER_PRESENCE: RequestParameter
REQUEST_PARAMETER_FREQUENCY: RequestParameter
PREFILL_FIELD_SLOT: PrefillField
PREFILL_FIELD_EPOCH: PrefillField
PREFILL_FIELD_CONSUMED: PrefillField
PREFILL_FIELD_COUNT: PrefillField
PREFILL_FIELD_SAMPLE: PrefillField
PREFILL_FIELD_MASKED: PrefillField
STATE_FIELD_SLOT: StateField
STATE_FIELD_EPOCH: StateField
STATE_FIELD_ROW: StateField
STATE_FIELD_CONSUMED: StateField
STATE_FIELD_PAGE: StateField
COMPLETION_FIELD_EPOCH: CompletionField
COMPLETION_FIELD_SLOT: CompletionField
COMPLETION_FIELD_STATUS: CompletionField
COMPLETION_FIELD_FAMILY: CompletionField
COMPLETION_FIELD_CONSUMED: CompletionField
COMPLETION_FIELD_GENERATED: CompletionField
COMPLETION_FIELD_TOKEN_COUNT: CompletionField
COMPLETION_FIELD_FINISHED: CompletionField
COMPLETION_FIELD_PENDING: CompletionField
COMPLETION_FIELD_COUNTER: CompletionField
COMPLETION_FIELD_ROW: CompletionField
COMPLETION_FIELD_LOGPROB_COUNT: CompletionField
COMPLETION_STATUS_INACTIVE: CompletionStatus
COMPLETION_STATUS_LIVE: CompletionStatus
COMPLETION_STATUS_REJECTED: CompletionStatus
FINISH_NONE: Finish
FINISH_EOS: Finish
FINISH_LENGTH: Finish
OPERATION_FAMILY_UNSPECIFIED: OperationFamily
OPERATION_FAMILY_PREFILL: OperationFamily
OPERATION_FAMILY_DECODE: OperationFamily
OPERATION_FAMILY_RESUME: OperationFamily
OPERATION_FAMILY_INITIALIZE: OperationFamily
OPERATION_FAMILY_RESTORE: OperationFamily
OPERATION_FAMILY_SNAPSHOT: OperationFamily
OPERATION_FAMILY_RESET: OperationFamily
CLUSTER_SCHEDULING_DEFAULT: ClusterScheduling
CLUSTER_SCHEDULING_SPREAD: ClusterScheduling
CLUSTER_SCHEDULING_LOAD_BALANCING: ClusterScheduling
MEMORY_SYNC_DOMAIN_DEFAULT: MemorySyncDomain
MEMORY_SYNC_DOMAIN_REMOTE: MemorySyncDomain
ACCESS_PROPERTY_NORMAL: AccessProperty
ACCESS_PROPERTY_STREAMING: AccessProperty
ACCESS_PROPERTY_PERSISTING: AccessProperty
TOOL_PARSER_UNSPECIFIED: ToolParser
TOOL_PARSER_NONE: ToolParser
TOOL_PARSER_HERMES_JSON: ToolParser
TOOL_PARSER_QWEN_XML: ToolParser
TOOL_PARSER_LLAMA3_JSON: ToolParser
TOOL_PARSER_MISTRAL: ToolParser
TOOL_PARSER_GLM: ToolParser
TOOL_PARSER_DEEPSEEK: ToolParser
TOOL_PARSER_KIMI: ToolParser
TOOL_PARSER_GEMMA: ToolParser
TOOL_PARSER_HARMONY: ToolParser
REASONING_PARSER_UNSPECIFIED: ReasoningParser
REASONING_PARSER_NONE: ReasoningParser
REASONING_PARSER_THINK_TAGS: ReasoningParser
REASONING_PARSER_THINK_OPEN: ReasoningParser
REASONING_PARSER_THINK_BRACKETS: ReasoningParser
REASONING_PARSER_THOUGHT_CHANNEL: ReasoningParser
REASONING_PARSER_HARMONY: ReasoningParser

class PreparedContract(_message.Message):
    __slots__ = ("abi", "identity", "limits", "regions", "modules", "kernels", "buffers", "state", "completion", "programs", "sampling", "frontend")
    ABI_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    FRONTEND_FIELD_NUMBER: _ClassVar[int]
    abi: int
    identity: Identity
    limits: Limits
    regions: _containers.RepeatedCompositeFieldContainer[Region]
    modules: _containers.RepeatedCompositeFieldContainer[Module]
    kernels: _containers.RepeatedCompositeFieldContainer[Kernel]
    buffers: _containers.RepeatedCompositeFieldContainer[Buffer]
    state: StateSchema
    completion: CompletionLayout
    programs: _containers.RepeatedCompositeFieldContainer[Program]
    sampling: SamplingDefaults
    frontend: Frontend
    def __init__(self, abi: _Optional[int] = ..., identity: _Optional[_Union[Identity, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., regions: _Optional[_Iterable[_Union[Region, _Mapping]]] = ..., modules: _Optional[_Iterable[_Union[Module, _Mapping]]] = ..., kernels: _Optional[_Iterable[_Union[Kernel, _Mapping]]] = ..., buffers: _Optional[_Iterable[_Union[Buffer, _Mapping]]] = ..., state: _Optional[_Union[StateSchema, _Mapping]] = ..., completion: _Optional[_Union[CompletionLayout, _Mapping]] = ..., programs: _Optional[_Iterable[_Union[Program, _Mapping]]] = ..., sampling: _Optional[_Union[SamplingDefaults, _Mapping]] = ..., frontend: _Optional[_Union[Frontend, _Mapping]] = ...) -> None: ...

class Identity(_message.Message):
    __slots__ = ("model_name", "model_fingerprint", "storage_digest", "host", "cuda", "created", "versions")
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    STORAGE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    CUDA_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    model_name: str
    model_fingerprint: str
    storage_digest: str
    host: HostDevice
    cuda: CudaDevice
    created: str
    versions: str
    def __init__(self, model_name: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., storage_digest: _Optional[str] = ..., host: _Optional[_Union[HostDevice, _Mapping]] = ..., cuda: _Optional[_Union[CudaDevice, _Mapping]] = ..., created: _Optional[str] = ..., versions: _Optional[str] = ...) -> None: ...

class HostDevice(_message.Message):
    __slots__ = ("architecture", "isa")
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    ISA_FIELD_NUMBER: _ClassVar[int]
    architecture: str
    isa: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, architecture: _Optional[str] = ..., isa: _Optional[_Iterable[str]] = ...) -> None: ...

class CudaDevice(_message.Message):
    __slots__ = ("compute_major", "compute_minor", "multiprocessors")
    COMPUTE_MAJOR_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_MINOR_FIELD_NUMBER: _ClassVar[int]
    MULTIPROCESSORS_FIELD_NUMBER: _ClassVar[int]
    compute_major: int
    compute_minor: int
    multiprocessors: int
    def __init__(self, compute_major: _Optional[int] = ..., compute_minor: _Optional[int] = ..., multiprocessors: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("context_tokens_max", "requests_max", "vocabulary", "prefill_tokens_max", "bias_entries_max", "logprobs_max")
    CONTEXT_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_MAX_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    BIAS_ENTRIES_MAX_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_MAX_FIELD_NUMBER: _ClassVar[int]
    context_tokens_max: int
    requests_max: int
    vocabulary: int
    prefill_tokens_max: int
    bias_entries_max: int
    logprobs_max: int
    def __init__(self, context_tokens_max: _Optional[int] = ..., requests_max: _Optional[int] = ..., vocabulary: _Optional[int] = ..., prefill_tokens_max: _Optional[int] = ..., bias_entries_max: _Optional[int] = ..., logprobs_max: _Optional[int] = ...) -> None: ...

class Region(_message.Message):
    __slots__ = ("name", "address", "bytes", "role", "backing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    BACKING_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: int
    bytes: int
    role: RegionRole
    backing: RegionBacking
    def __init__(self, name: _Optional[str] = ..., address: _Optional[int] = ..., bytes: _Optional[int] = ..., role: _Optional[_Union[RegionRole, str]] = ..., backing: _Optional[_Union[RegionBacking, str]] = ...) -> None: ...

class Module(_message.Message):
    __slots__ = ("name", "format")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    name: str
    format: ModuleFormat
    def __init__(self, name: _Optional[str] = ..., format: _Optional[_Union[ModuleFormat, str]] = ...) -> None: ...

class Kernel(_message.Message):
    __slots__ = ("module", "symbol", "max_dynamic_shared_bytes", "non_portable_cluster", "preferred_carveout")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    MAX_DYNAMIC_SHARED_BYTES_FIELD_NUMBER: _ClassVar[int]
    NON_PORTABLE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_CARVEOUT_FIELD_NUMBER: _ClassVar[int]
    module: int
    symbol: str
    max_dynamic_shared_bytes: int
    non_portable_cluster: bool
    preferred_carveout: int
    def __init__(self, module: _Optional[int] = ..., symbol: _Optional[str] = ..., max_dynamic_shared_bytes: _Optional[int] = ..., non_portable_cluster: _Optional[bool] = ..., preferred_carveout: _Optional[int] = ...) -> None: ...

class Buffer(_message.Message):
    __slots__ = ("source", "region", "offset_bytes", "type", "shape")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    source: ValueSource
    region: int
    offset_bytes: int
    type: DataType
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, source: _Optional[_Union[ValueSource, str]] = ..., region: _Optional[int] = ..., offset_bytes: _Optional[int] = ..., type: _Optional[_Union[DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class StateSchema(_message.Message):
    __slots__ = ("rows_region", "row_stride_bytes", "rows_per_slot", "row_segments", "pages_region", "page_stride_bytes", "page_tokens", "page_segments")
    ROWS_REGION_FIELD_NUMBER: _ClassVar[int]
    ROW_STRIDE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_SLOT_FIELD_NUMBER: _ClassVar[int]
    ROW_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    PAGES_REGION_FIELD_NUMBER: _ClassVar[int]
    PAGE_STRIDE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    rows_region: int
    row_stride_bytes: int
    rows_per_slot: int
    row_segments: _containers.RepeatedCompositeFieldContainer[Segment]
    pages_region: int
    page_stride_bytes: int
    page_tokens: int
    page_segments: _containers.RepeatedCompositeFieldContainer[Segment]
    def __init__(self, rows_region: _Optional[int] = ..., row_stride_bytes: _Optional[int] = ..., rows_per_slot: _Optional[int] = ..., row_segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., pages_region: _Optional[int] = ..., page_stride_bytes: _Optional[int] = ..., page_tokens: _Optional[int] = ..., page_segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("name", "offset_bytes", "bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset_bytes: int
    bytes: int
    def __init__(self, name: _Optional[str] = ..., offset_bytes: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class CompletionLayout(_message.Message):
    __slots__ = ("metadata_fields", "token_capacity", "frames")
    METADATA_FIELDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    metadata_fields: int
    token_capacity: int
    frames: int
    def __init__(self, metadata_fields: _Optional[int] = ..., token_capacity: _Optional[int] = ..., frames: _Optional[int] = ...) -> None: ...

class Program(_message.Message):
    __slots__ = ("name", "family", "requests", "tokens", "nodes", "edges", "bindings", "cost_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    COST_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    family: OperationFamily
    requests: int
    tokens: int
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    edges: _containers.RepeatedCompositeFieldContainer[Edge]
    bindings: _containers.RepeatedScalarFieldContainer[int]
    cost_ms: float
    def __init__(self, name: _Optional[str] = ..., family: _Optional[_Union[OperationFamily, str]] = ..., requests: _Optional[int] = ..., tokens: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[Edge, _Mapping]]] = ..., bindings: _Optional[_Iterable[int]] = ..., cost_ms: _Optional[float] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("kernel", "arguments", "launch", "copy", "fill")
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    FILL_FIELD_NUMBER: _ClassVar[int]
    kernel: int
    arguments: _containers.RepeatedScalarFieldContainer[int]
    launch: Launch
    copy: Copy
    fill: Fill
    def __init__(self, kernel: _Optional[int] = ..., arguments: _Optional[_Iterable[int]] = ..., launch: _Optional[_Union[Launch, _Mapping]] = ..., copy: _Optional[_Union[Copy, _Mapping]] = ..., fill: _Optional[_Union[Fill, _Mapping]] = ...) -> None: ...

class Launch(_message.Message):
    __slots__ = ("grid", "block", "dynamic_shared_bytes", "parameters", "parameter_bytes", "cooperative", "priority", "cluster", "preferred_cluster", "cluster_scheduling", "memory_sync_domain", "memory_sync_domain_map", "access_window", "nvlink_centric_scheduling")
    GRID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_SHARED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_BYTES_FIELD_NUMBER: _ClassVar[int]
    COOPERATIVE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_SCHEDULING_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SYNC_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SYNC_DOMAIN_MAP_FIELD_NUMBER: _ClassVar[int]
    ACCESS_WINDOW_FIELD_NUMBER: _ClassVar[int]
    NVLINK_CENTRIC_SCHEDULING_FIELD_NUMBER: _ClassVar[int]
    grid: Extent3
    block: Extent3
    dynamic_shared_bytes: int
    parameters: bytes
    parameter_bytes: _containers.RepeatedScalarFieldContainer[int]
    cooperative: bool
    priority: int
    cluster: Extent3
    preferred_cluster: Extent3
    cluster_scheduling: ClusterScheduling
    memory_sync_domain: MemorySyncDomain
    memory_sync_domain_map: MemorySyncDomainMap
    access_window: AccessWindow
    nvlink_centric_scheduling: bool
    def __init__(self, grid: _Optional[_Union[Extent3, _Mapping]] = ..., block: _Optional[_Union[Extent3, _Mapping]] = ..., dynamic_shared_bytes: _Optional[int] = ..., parameters: _Optional[bytes] = ..., parameter_bytes: _Optional[_Iterable[int]] = ..., cooperative: _Optional[bool] = ..., priority: _Optional[int] = ..., cluster: _Optional[_Union[Extent3, _Mapping]] = ..., preferred_cluster: _Optional[_Union[Extent3, _Mapping]] = ..., cluster_scheduling: _Optional[_Union[ClusterScheduling, str]] = ..., memory_sync_domain: _Optional[_Union[MemorySyncDomain, str]] = ..., memory_sync_domain_map: _Optional[_Union[MemorySyncDomainMap, _Mapping]] = ..., access_window: _Optional[_Union[AccessWindow, _Mapping]] = ..., nvlink_centric_scheduling: _Optional[bool] = ...) -> None: ...

class Extent3(_message.Message):
    __slots__ = ("x", "y", "z")
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    Z_FIELD_NUMBER: _ClassVar[int]
    x: int
    y: int
    z: int
    def __init__(self, x: _Optional[int] = ..., y: _Optional[int] = ..., z: _Optional[int] = ...) -> None: ...

class MemorySyncDomainMap(_message.Message):
    __slots__ = ("default_domain", "remote_domain")
    DEFAULT_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    REMOTE_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    default_domain: int
    remote_domain: int
    def __init__(self, default_domain: _Optional[int] = ..., remote_domain: _Optional[int] = ...) -> None: ...

class AccessWindow(_message.Message):
    __slots__ = ("address", "bytes", "hit_ratio", "hit", "miss")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    HIT_RATIO_FIELD_NUMBER: _ClassVar[int]
    HIT_FIELD_NUMBER: _ClassVar[int]
    MISS_FIELD_NUMBER: _ClassVar[int]
    address: int
    bytes: int
    hit_ratio: float
    hit: AccessProperty
    miss: AccessProperty
    def __init__(self, address: _Optional[int] = ..., bytes: _Optional[int] = ..., hit_ratio: _Optional[float] = ..., hit: _Optional[_Union[AccessProperty, str]] = ..., miss: _Optional[_Union[AccessProperty, str]] = ...) -> None: ...

class Copy(_message.Message):
    __slots__ = ("destination", "source", "bytes")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    destination: int
    source: int
    bytes: int
    def __init__(self, destination: _Optional[int] = ..., source: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Fill(_message.Message):
    __slots__ = ("destination", "value", "element_bytes", "elements")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    destination: int
    value: int
    element_bytes: int
    elements: int
    def __init__(self, destination: _Optional[int] = ..., value: _Optional[int] = ..., element_bytes: _Optional[int] = ..., elements: _Optional[int] = ...) -> None: ...

class Edge(_message.Message):
    __slots__ = ("to", "from_port", "type", "to_port")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    FROM_PORT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TO_PORT_FIELD_NUMBER: _ClassVar[int]
    to: int
    from_port: int
    type: int
    to_port: int
    def __init__(self, to: _Optional[int] = ..., from_port: _Optional[int] = ..., type: _Optional[int] = ..., to_port: _Optional[int] = ..., **kwargs) -> None: ...

class Range(_message.Message):
    __slots__ = ("minimum", "maximum")
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    minimum: float
    maximum: float
    def __init__(self, minimum: _Optional[float] = ..., maximum: _Optional[float] = ...) -> None: ...

class SamplingDefaults(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "temperature_range")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_RANGE_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    temperature_range: Range
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., temperature_range: _Optional[_Union[Range, _Mapping]] = ...) -> None: ...

class Frontend(_message.Message):
    __slots__ = ("eos_tokens", "bos_text", "eos_text", "tool_parser", "reasoning_parser")
    EOS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BOS_TEXT_FIELD_NUMBER: _ClassVar[int]
    EOS_TEXT_FIELD_NUMBER: _ClassVar[int]
    TOOL_PARSER_FIELD_NUMBER: _ClassVar[int]
    REASONING_PARSER_FIELD_NUMBER: _ClassVar[int]
    eos_tokens: _containers.RepeatedScalarFieldContainer[int]
    bos_text: str
    eos_text: str
    tool_parser: ToolParser
    reasoning_parser: ReasoningParser
    def __init__(self, eos_tokens: _Optional[_Iterable[int]] = ..., bos_text: _Optional[str] = ..., eos_text: _Optional[str] = ..., tool_parser: _Optional[_Union[ToolParser, str]] = ..., reasoning_parser: _Optional[_Union[ReasoningParser, str]] = ...) -> None: ...

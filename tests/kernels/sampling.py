"""A sampling launch's buffers, and the reference that its results are compared with."""

import numpy as np

FIELDS = "epoch consumed generated finished pending counter seed top_k output_limit ignore_eos logprobs bias_count"
F = {name: i for i, name in enumerate(FIELDS.split())}
PARAMETERS = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "repetition": 1.0, "presence": 0.0, "frequency": 0.0}
INACTIVE, LIVE, REJECTED = 0, 1, 2
DECODE = 2


class Launch:
    """Everything that one call of `flare_sample` binds, for B lanes, C slots and a vocabulary of V."""

    def __init__(self, kernels, b, c, v, bias_max=4, logprobs_max=20, token_capacity=8, eos=()):
        """Lanes are empty, slots are zero."""
        self.kernels, self.v, self.bias_max, self.logprobs_max = kernels, v, bias_max, logprobs_max
        self.token_capacity, self.eos = token_capacity, np.array([*eos, 0][: max(1, len(eos))], np.int64)
        self.eos_count = len(eos)
        self.logits = np.zeros((b, v), np.float32)
        self.lanes = np.tile(np.array([-1, INACTIVE, 0, 0]), (b, 1))
        self.fields = np.zeros((c, 16), np.int64)
        self.parameters = np.tile(np.array([*PARAMETERS.values(), 0, 0], np.float32), (c, 1))
        self.histogram = np.zeros((c, v), np.int32)
        self.bias_tokens = np.zeros((c, bias_max), np.int64)
        self.bias_values = np.zeros((c, bias_max), np.float32)
        self.masks = np.zeros((b, -(-v // 32)), np.uint32)
        self.frame = np.zeros(1, np.int64)
        self.completion = np.full((2, b, 16 + token_capacity), -7, np.int64)
        self.logprob_tokens = np.full((2, b, logprobs_max), -7, np.int64)
        self.logprob_values = np.full((2, b, 1 + logprobs_max), np.nan, np.float32)
        self.scratch = kernels.scratch("sample", b, v)

    def request(self, slot, epoch=5, seed=0, output_limit=1 << 40, logprobs=-1, top_k=0, counter=0, **parameters):
        """Fills a slot's request."""
        self.fields[slot] = 0
        for name, value in (
            ("epoch", epoch), ("pending", -1), ("seed", seed), ("output_limit", output_limit), ("logprobs", logprobs),
            ("top_k", top_k), ("counter", counter),
        ):  # fmt: skip
            self.fields[slot, F[name]] = value
        self.parameters[slot, :6] = list((PARAMETERS | parameters).values())

    def lane(self, lane, slot, status=LIVE, sample=1, masked=0):
        """Puts a slot into a lane."""
        self.lanes[lane] = slot, status, sample, masked

    def allow(self, lane, tokens):
        """Sets a lane's grammar mask."""
        self.masks[lane] = 0
        for token in tokens:
            self.masks[lane, token // 32] |= np.uint32(1 << (token % 32))

    def run(self):
        """One launch; gives the records of its frame."""
        b, c = len(self.lanes), len(self.fields)
        self.kernels.call(
            "sample", self.logits, self.lanes, self.fields, self.parameters, self.histogram, self.bias_tokens,
            self.bias_values, self.masks, self.eos, self.frame, self.completion, self.logprob_tokens,
            self.logprob_values, self.scratch, b, self.v, c, self.bias_max, self.eos_count, b, self.token_capacity,
            self.logprobs_max, DECODE,
        )  # fmt: skip
        return self.completion[self.frame[0]]


def scores_of(launch, lane, slot):
    """What a lane samples from, in float64, in the header's order."""
    p = dict(zip(PARAMETERS, launch.parameters[slot, :6].astype(np.float64), strict=True))
    z = launch.logits[lane].astype(np.float64)
    for i in range(launch.fields[slot, F["bias_count"]]):
        z[launch.bias_tokens[slot, i]] += launch.bias_values[slot, i]
    count = launch.histogram[slot]
    penalized = np.where(z > 0, z / p["repetition"], z * p["repetition"]) - p["presence"] - p["frequency"] * count
    z = np.where(count > 0, penalized, z)
    if launch.lanes[lane, 3]:
        tokens = np.arange(launch.v)
        allowed = launch.masks[lane, tokens // 32] >> (tokens % 32).astype(np.uint32) & 1
        z = np.where(allowed, z, -np.inf)
    return z / p["temperature"]


def distribution(launch, lane, slot):
    """The exact filtered distribution: top-k, top-p (ties kept), min-p."""
    z = scores_of(launch, lane, slot)
    top_k, (top_p, min_p) = launch.fields[slot, F["top_k"]], launch.parameters[slot, 1:3].astype(np.float64)
    if 0 < top_k < launch.v:
        z = np.where(z >= np.sort(z)[-top_k], z, -np.inf)
    w = np.exp(z - z.max())
    if top_p < 1:
        order = np.argsort(-z, kind="stable")
        reached = np.cumsum(w[order]) >= top_p * w.sum()
        z = np.where(z >= z[order[np.argmax(reached)]], z, -np.inf)
        w = np.exp(z - z.max())
    w = np.where(w >= min_p, w, 0)
    return w / w.sum()


def philox(seed, counter):
    """The first word of Philox4x32-10 at block `counter` under key `seed`, and its uniform."""
    c = [counter & 0xFFFFFFFF, counter >> 32 & 0xFFFFFFFF, 0, 0]
    k = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    c = philox_block(c, k)
    return c[0], c[0] * 2.0**-32 + 2.0**-33


def philox_block(c, k):
    """Philox4x32-10 as Salmon et al. (2011) define it."""
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c

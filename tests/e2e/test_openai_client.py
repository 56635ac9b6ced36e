"""The `openai` client against a real server and a real model: streaming, choices, stops, seeds, usage."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from tokenizers import Tokenizer

QUESTION = [{"role": "user", "content": "Name three rivers of Europe."}]
GREEDY = {"top_k": 1}


@pytest.fixture
def ask(client: openai.OpenAI, model: str) -> Any:
    """A chat completion of the question with any fields; `stream=True` gives the list of chunks."""

    def call(*, extra_body: dict[str, Any] | None = None, **fields: Any) -> Any:
        fields = {"messages": QUESTION, "max_tokens": 24, **fields}
        answer = client.chat.completions.create(model=model, extra_body=extra_body or {}, **fields)
        return list(answer) if fields.get("stream") else answer

    return call


def streamed_text(chunks: Sequence[ChatCompletionChunk], index: int = 0) -> str:
    choices = (choice for chunk in chunks for choice in chunk.choices if choice.index == index)
    return "".join(choice.delta.content or "" for choice in choices)


def text(answer: ChatCompletion, index: int = 0) -> str:
    return answer.choices[index].message.content or ""


def test_a_question_is_answered(ask) -> None:
    answer = ask(messages=[{"role": "user", "content": "What is the capital of France?"}], extra_body=GREEDY)
    assert "Paris" in text(answer)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"


def test_a_stream_holds_the_same_text(ask) -> None:
    whole = ask(extra_body=GREEDY)
    chunks = ask(extra_body=GREEDY, stream=True)
    assert streamed_text(chunks) == text(whole)
    assert chunks[0].choices[0].delta.role == "assistant"
    finishes = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert finishes == [whole.choices[0].finish_reason]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_comes_last_when_asked_for(ask) -> None:
    whole = ask(extra_body=GREEDY)
    chunks = ask(extra_body=GREEDY, stream=True, stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
    )
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_output_limit_holds(ask, field: str) -> None:
    limits = {"max_tokens": None, field: 5}
    answer = ask(**limits, messages=[{"role": "user", "content": "Count from one to fifty."}], extra_body=GREEDY)
    assert answer.usage.completion_tokens == 5
    assert answer.choices[0].finish_reason == "length"


def test_a_seed_reproduces_and_another_differs(ask) -> None:
    first, again, other = (text(ask(seed=seed, temperature=1.3)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_n_choices_differ_and_reproduce(ask) -> None:
    first, again = (ask(seed=3, temperature=1.3, n=3) for _ in range(2))
    texts = [text(first, index) for index in range(3)]
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts == [text(again, index) for index in range(3)]
    assert first.usage.completion_tokens <= 3 * 24

    chunks = ask(seed=3, temperature=1.3, n=3, stream=True)
    assert [streamed_text(chunks, index) for index in range(3)] == texts
    finished = [choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert sorted(finished) == [0, 1, 2]


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text_before_itself(ask, stream: bool) -> None:
    whole = text(ask(extra_body=GREEDY))
    start = len(whole) // 2
    stop = whole[start : start + 5]
    expected = whole[: whole.index(stop)]
    answer = ask(extra_body=GREEDY, stop=[stop, "never said"], stream=stream)
    if stream:
        assert streamed_text(answer) == expected
        assert [c.finish_reason for chunk in answer for c in chunk.choices if c.finish_reason] == ["stop"]
    else:
        assert text(answer) == expected
        assert answer.choices[0].finish_reason == "stop"


def test_logprobs_tell_of_every_token(ask) -> None:
    answer = ask(extra_body=GREEDY, logprobs=True, top_logprobs=4, max_tokens=8)
    entries = answer.choices[0].logprobs.content
    assert len(entries) in (answer.usage.completion_tokens, answer.usage.completion_tokens - 1)
    for entry in entries:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 4
        values = [alternative.logprob for alternative in entry.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert entry.top_logprobs[0].token == entry.token
        assert entry.top_logprobs[0].logprob == pytest.approx(entry.logprob, abs=1e-4)
    spelled = b"".join(bytes(entry.bytes or []) for entry in entries)
    assert spelled.decode() == text(answer)


def test_a_bias_forces_a_token(ask, tokenizer: Tokenizer) -> None:
    (token,) = tokenizer.encode(" river", add_special_tokens=False).ids
    answer = ask(extra_body=GREEDY, logit_bias={str(token): 100}, max_tokens=3)
    assert text(answer) == " river river river"


def test_a_repetition_penalty_changes_the_answer(ask) -> None:
    plain = ask(extra_body=GREEDY)
    penalized = ask(extra_body={**GREEDY, "repetition_penalty": 1.8})
    assert text(plain) != text(penalized)


def test_a_crowd_does_not_change_an_answer(ask) -> None:
    alone = text(ask(seed=11, temperature=1.0, max_tokens=16))
    with ThreadPoolExecutor(6) as pool:
        crowd = [pool.submit(ask, seed=seed, temperature=1.0, max_tokens=16) for seed in (1, 11, 2, 11, 3, 11)]
        texts = [text(future.result()) for future in crowd]
    assert texts[1::2] == [alone] * 3


def test_completions_count_the_prompt(client: openai.OpenAI, model: str, tokenizer: Tokenizer) -> None:
    prompt = "The capital of France is"
    answer = client.completions.create(model=model, prompt=prompt, max_tokens=4, extra_body=GREEDY)
    assert "Paris" in answer.choices[0].text
    assert answer.usage.prompt_tokens == len(tokenizer.encode(prompt, add_special_tokens=False).ids)

    chunks = list(client.completions.create(model=model, prompt=prompt, max_tokens=4, extra_body=GREEDY, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == answer.choices[0].text


def test_completions_take_tokens_and_several_prompts(client: openai.OpenAI, model: str, tokenizer: Tokenizer) -> None:
    prompts = ["The capital of France is", "One, two, three,"]
    tokens = tokenizer.encode(prompts[0], add_special_tokens=False).ids
    both, by_tokens = (
        client.completions.create(model=model, prompt=prompt, max_tokens=4, extra_body=GREEDY)
        for prompt in (prompts, tokens)
    )
    assert [choice.index for choice in both.choices] == [0, 1]
    assert by_tokens.choices[0].text == both.choices[0].text


def test_completion_logprobs_point_into_the_text(client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt="One, two, three,", max_tokens=6, logprobs=2, extra_body=GREEDY
    )
    logprobs = answer.choices[0].logprobs
    assert "".join(logprobs.tokens) == answer.choices[0].text
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset)
    offsets = [offset - logprobs.text_offset[0] for offset in logprobs.text_offset]
    lengths = [len(token) for token in logprobs.tokens]
    assert offsets == [sum(lengths[:i]) for i in range(len(lengths))]
    assert all(len(alternatives) >= 2 for alternatives in logprobs.top_logprobs)


def test_models_are_listed_and_found(client: openai.OpenAI, model: str) -> None:
    assert client.models.retrieve(model).id == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_errors_are_typed(ask, client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        ask(extra_body={"top_p": 7})
    assert bad.value.body.keys() == {"message", "type", "param", "code"}
    assert bad.value.param == "top_p"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.models.retrieve("no-such-model")
    assert unknown.value.code == "model_not_found"
    assert unknown.value.body.keys() == {"message", "type", "param", "code"}
